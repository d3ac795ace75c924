package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.OnUnavailable;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The configuration, below {@code ratelimitd}.
 *
 * @param urls addresses of ratelimitd, used in turn
 * @param token the bearer token of requests to ratelimitd; none by default
 * @param sslBundle the name of the SSL bundle with ratelimitd's authorities and this application's certificate;
 *     none by default
 * @param timeout the time of a call to ratelimitd, with all its attempts
 * @param retries how often a failed call is repeated if it can't count twice
 * @param onUnavailable the result of the client's own calls while no ratelimitd answers
 * @param trustedProxies addresses and networks of proxies whose X-Forwarded-For is trusted; unix is a proxy that connects
 *     to Tomcat through a unix socket
 * @param by the counted caller if a route or an annotation does not say: ip, principal, api-key, header:NAME or
 *     bean:NAME
 * @param failClosed whether requests without a decision get a 503; otherwise they pass
 * @param healthPolicy the policy of the health check; by default that of the first route
 * @param routes the limits of requests; all that match apply together
 */
@ConfigurationProperties("ratelimitd")
record RatelimitdProperties(
        @DefaultValue("http://127.0.0.1:8080") List<String> urls,
        String token,
        String sslBundle,
        @DefaultValue("2s") Duration timeout,
        @DefaultValue("0") int retries,
        @DefaultValue("fail-closed") OnUnavailable onUnavailable,
        @DefaultValue List<String> trustedProxies,
        @DefaultValue("ip") String by,
        @DefaultValue("false") boolean failClosed,
        String healthPolicy,
        @DefaultValue List<Route> routes) {
    /**
     * The limit of some requests.
     *
     * @param path a pattern within the application, such as /api/**
     * @param methods such as POST; all by default. GET includes HEAD.
     * @param policy the name of the policy
     * @param by the counted caller; by default ratelimitd.by
     * @param cost units
     * @param limit the source of the limit, under a policy that takes its limit from requests: bean:NAME; by default the policy's
     *     default
     */
    record Route(
            String path,
            @DefaultValue List<String> methods,
            String policy,
            String by,
            @DefaultValue("1") long cost,
            String limit) {}

    /** Returns the policy of the health check; empty: none is known. */
    String checkedPolicy() {
        if (healthPolicy != null) {
            return healthPolicy;
        }
        return routes.isEmpty() ? "" : routes.get(0).policy();
    }
}

package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.OnUnavailable;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The configuration, below {@code ratelimitd}.
 *
 * @param urls addresses of ratelimitd, tried in turn
 * @param token the bearer token of requests to ratelimitd; none by default
 * @param sslBundle the name of the SSL bundle that has ratelimitd's authorities, and the certificate of this application;
 *     none by default
 * @param timeout of a call to ratelimitd, with all its tries
 * @param retries how often a call that failed is sent again where that cannot count twice
 * @param onUnavailable what the client's own calls give while no ratelimitd answers
 * @param trustedProxies addresses and networks of proxies whose X-Forwarded-For is believed; unix is a proxy that connects
 *     to Tomcat by a unix socket
 * @param by the caller that is counted where a route or an annotation does not say: ip, principal, api-key, header:NAME or
 *     bean:NAME
 * @param failClosed whether requests are answered 503 while nobody decides; otherwise they pass
 * @param healthPolicy the policy that the health check asks for; that of the first route by default
 * @param routes what limits which requests: all that match, together
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
     * What limits some requests.
     *
     * @param path a pattern within the application, such as /api/**
     * @param methods such as POST; all by default. GET is HEAD, too.
     * @param policy the name of the policy
     * @param by the caller that is counted; as ratelimitd.by says by default
     * @param cost units
     * @param limit what brings the limit, under a policy that takes its limit from requests: bean:NAME; the policy's default
     *     holds by default
     */
    record Route(
            String path,
            @DefaultValue List<String> methods,
            String policy,
            String by,
            @DefaultValue("1") long cost,
            String limit) {}

    /** Returns the policy that the health check asks for; empty: none is known. */
    String checkedPolicy() {
        if (healthPolicy != null) {
            return healthPolicy;
        }
        return routes.isEmpty() ? "" : routes.get(0).policy();
    }
}

package io.github.ratelimitd.spring;

import java.util.List;
import java.util.Map;
import org.springframework.cloud.gateway.filter.ratelimit.AbstractRateLimiter;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.http.HttpStatus;
import org.springframework.web.server.ResponseStatusException;
import reactor.core.publisher.Mono;

/** Decides for {@code RequestRateLimiter} of Spring Cloud Gateway, whose key resolver names the caller. */
final class GatewayRateLimiter extends AbstractRateLimiter<GatewayRateLimiter.Config> {
    /** The prefix of a filter's arguments. */
    private static final String ARGUMENTS = "ratelimitd";

    private final Limiter limiter;

    GatewayRateLimiter(Limiter limiter, ConfigurationService service) {
        super(Config.class, ARGUMENTS, service);
        this.limiter = limiter;
    }

    /** Arguments of a filter. */
    public static final class Config {
        private String policy;
        private long cost = 1;

        /** Makes arguments without a policy. */
        public Config() {}

        /**
         * Returns the name of the policy.
         *
         * @return null: none is set
         */
        public String getPolicy() {
            return policy;
        }

        /**
         * Sets the name of the policy.
         *
         * @param policy such as {@code login}
         */
        public void setPolicy(String policy) {
            this.policy = policy;
        }

        /**
         * Returns the cost of a request.
         *
         * @return units
         */
        public long getCost() {
            return cost;
        }

        /**
         * Sets the cost of a request.
         *
         * @param cost units, 1 or more
         */
        public void setCost(long cost) {
            this.cost = cost;
        }
    }

    @Override
    public Mono<Response> isAllowed(String routeId, String id) {
        Config config = getConfig().get(routeId);
        if (config == null || config.policy == null) {
            return Mono.error(new IllegalArgumentException(
                    "route " + routeId + ": RequestRateLimiter needs the argument " + ARGUMENTS + ".policy"));
        }
        Limiter.Rule rule = new Limiter.Rule(config.policy, request -> id, config.cost);
        return Mono.fromFuture(() -> limiter.decideAsync(null, List.of(rule))).map(GatewayRateLimiter::response);
    }

    /** Returns 200 or 429, the answers that the gateway's filter knows. Other answers are errors. */
    private static Response response(Verdict verdict) {
        if (verdict.passes() || verdict.status() == 429) {
            Map<String, String> headers = verdict.passes() ? verdict.headers() : Verdict.withoutBody(verdict.headers());
            return new Response(verdict.passes(), headers);
        }
        throw new ResponseStatusException(HttpStatus.valueOf(verdict.status()));
    }
}

package io.github.ratelimitd.spring;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.springframework.core.Ordered;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.server.PathContainer;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.reactive.HandlerAdapter;
import org.springframework.web.reactive.HandlerResult;
import org.springframework.web.reactive.result.method.annotation.RequestMappingHandlerAdapter;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** Limits of WebFlux: a filter limits routes, and an adapter of handlers limits by annotations. */
final class ReactiveLimits {
    private ReactiveLimits() {}

    /** Limits requests by the routes of the configuration. */
    static final class RouteFilter implements WebFilter, Ordered {
        private final Limiter limiter;
        private final Rules rules;

        RouteFilter(Limiter limiter, Rules rules) {
            this.limiter = limiter;
            this.rules = rules;
        }

        @Override
        public int getOrder() {
            return Limiter.ORDER;
        }

        @Override
        public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
            PathContainer path = exchange.getRequest().getPath().pathWithinApplication();
            List<Limiter.Rule> limits = rules.ofRoutes(exchange.getRequest().getMethod().name(), path);
            UnderWay underWay = new UnderWay(limiter); // shared with annotations
            exchange.getAttributes().put(UnderWay.ATTRIBUTE, underWay);
            Mono<Void> answer = limits.isEmpty()
                    ? chain.filter(exchange)
                    : decide(limiter, exchange, limits).flatMap(passes -> passes ? chain.filter(exchange) : Mono.empty());
            return Mono.usingWhen(Mono.just(underWay), u -> answer, u -> Mono.fromFuture(u::end));
        }
    }

    /** Limits requests by the annotations of handlers, before Spring's own adapter calls them. */
    static final class AnnotationAdapter implements HandlerAdapter, Ordered {
        private final Limiter limiter;
        private final Rules rules;
        private final Supplier<RequestMappingHandlerAdapter> next;

        AnnotationAdapter(Limiter limiter, Rules rules, Supplier<RequestMappingHandlerAdapter> next) {
            this.limiter = limiter;
            this.rules = rules;
            this.next = next;
        }

        @Override
        public int getOrder() {
            return HIGHEST_PRECEDENCE;
        }

        @Override
        public boolean supports(Object handler) {
            return !rules.of(handler).isEmpty();
        }

        @Override
        public Mono<HandlerResult> handle(ServerWebExchange exchange, Object handler) {
            return decide(limiter, exchange, rules.of(handler))
                    .flatMap(passes -> passes ? next.get().handle(exchange, handler) : Mono.empty());
        }
    }

    /** Decides, and answers a request that does not pass. */
    private static Mono<Boolean> decide(Limiter limiter, ServerWebExchange exchange, List<Limiter.Rule> limits) {
        UnderWay underWay = exchange.getRequiredAttribute(UnderWay.ATTRIBUTE);
        // A client that disconnects does not cancel the call, because its units may count.
        return viewOf(exchange)
                .flatMap(view -> Mono.fromFuture(
                        () -> limiter.decideAsync(view, limits).thenApply(underWay::hold), true))
                .flatMap(verdict -> {
                    ServerHttpResponse response = exchange.getResponse();
                    verdict.headers().forEach(response.getHeaders()::set);
                    if (verdict.passes()) {
                        if (verdict.decision() != null) {
                            exchange.getAttributes().put(Limiter.DECISION, verdict.decision());
                        }
                        return Mono.just(true);
                    }
                    response.setStatusCode(HttpStatusCode.valueOf(verdict.status()));
                    byte[] body = verdict.body().getBytes(StandardCharsets.UTF_8);
                    return response.writeWith(Mono.just(response.bufferFactory().wrap(body))).thenReturn(false);
                });
    }

    /** Returns a view of a request, once its user is known. */
    static Mono<LimitedRequest> viewOf(ServerWebExchange exchange) {
        return exchange.getPrincipal()
                .map(Principal::getName)
                .map(Optional::of)
                .defaultIfEmpty(Optional.empty())
                .map(principal -> new View(exchange, principal));
    }

    private record View(ServerWebExchange exchange, Optional<String> principal) implements LimitedRequest {
        @Override
        public String method() {
            return exchange.getRequest().getMethod().name();
        }

        @Override
        public String path() {
            return exchange.getRequest().getPath().pathWithinApplication().value();
        }

        @Override
        public List<String> headers(String name) {
            List<String> found = new ArrayList<>();
            // The only method for several values that both Spring 6 and Spring 7 have.
            exchange.getRequest().getHeaders().forEach((header, values) -> {
                if (header.equalsIgnoreCase(name)) {
                    found.addAll(values);
                }
            });
            return found;
        }

        @Override
        public Optional<String> address() {
            InetSocketAddress remote = exchange.getRequest().getRemoteAddress();
            return Optional.ofNullable(remote).map(InetSocketAddress::getAddress).map(a -> a.getHostAddress());
        }
    }
}

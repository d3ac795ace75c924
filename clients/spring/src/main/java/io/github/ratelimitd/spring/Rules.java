package io.github.ratelimitd.spring;

import java.lang.reflect.AnnotatedElement;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.http.server.PathContainer;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The rules for requests: routes of the configuration, and annotations of handlers. */
final class Rules {
    private final Callers callers;
    private final Callers.By usual;
    private final Function<String, LimitResolver> limits;
    private final List<Route> routes = new ArrayList<>();
    private final Map<HandlerMethod, List<Limiter.Rule>> ofHandlers = new ConcurrentHashMap<>();

    private record Route(PathPattern path, Set<String> methods, Limiter.Rule rule) {
        boolean has(String method, PathContainer asked) {
            // A handler of GET also serves HEAD.
            boolean fits = methods.isEmpty() || methods.contains(method) || method.equals("HEAD") && methods.contains("GET");
            return fits && path.matches(asked);
        }
    }

    /**
     * Reads the rules of the configuration.
     *
     * @param limits finds a resolver by its name, or throws an exception
     * @throws IllegalArgumentException that names the wrong member
     */
    Rules(RatelimitdProperties properties, Callers callers, Function<String, LimitResolver> limits) {
        this.callers = callers;
        this.limits = limits;
        this.usual = callers.by(properties.by());
        for (int i = 0; i < properties.routes().size(); i++) {
            RatelimitdProperties.Route route = properties.routes().get(i);
            try {
                Set<String> methods = Set.copyOf(
                        route.methods().stream().map(m -> m.toUpperCase(Locale.ROOT)).toList());
                PathPattern path = PathPatternParser.defaultInstance.parse(checkedPath(route.path()));
                routes.add(new Route(path, methods, rule(route.policy(), route.by(), route.cost(), route.limit())));
            } catch (IllegalArgumentException e) {
                throw new IllegalArgumentException("ratelimitd.routes[" + i + "]: " + e.getMessage(), e);
            }
        }
    }

    private static String checkedPath(String path) {
        if (path == null || !path.startsWith("/")) {
            throw new IllegalArgumentException("path is " + path + ": it must begin with a slash, such as /api/**");
        }
        return path;
    }

    private Limiter.Rule rule(String policy, String by, long cost, String limit) {
        Callers.By caller = by == null || by.isEmpty() ? usual : callers.by(by);
        if (limit == null || limit.isEmpty()) {
            return new Limiter.Rule(policy, caller, cost);
        }
        if (!limit.startsWith("bean:")) {
            throw new IllegalArgumentException(
                    "ratelimitd: limit is " + limit + ": it must be bean:NAME of a LimitResolver");
        }
        return new Limiter.Rule(policy, caller, cost, limits.apply(limit.substring("bean:".length())));
    }

    /** Returns the rules of all routes that match a request. */
    List<Limiter.Rule> ofRoutes(String method, PathContainer path) {
        return routes.stream().filter(route -> route.has(method, path)).map(Route::rule).toList();
    }

    /** Returns the rules of a handler's annotations; empty: none. */
    List<Limiter.Rule> of(Object handler) {
        return handler instanceof HandlerMethod method ? ofHandlers.computeIfAbsent(method, this::read) : List.of();
    }

    /** Reads the annotations of all handlers, so that a wrong one fails the start. */
    void check(Collection<HandlerMethod> handlers) {
        handlers.forEach(this::read);
    }

    private List<Limiter.Rule> read(HandlerMethod handler) {
        Set<RateLimited> own = annotations(handler.getMethod());
        Set<RateLimited> all = own.isEmpty() ? annotations(handler.getBeanType()) : own;
        try {
            return all.stream().map(a -> rule(a.value(), a.by(), a.cost(), a.limit())).toList();
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("@RateLimited of " + handler.getShortLogMessage() + ": " + e.getMessage(), e);
        }
    }

    private static Set<RateLimited> annotations(AnnotatedElement element) {
        return AnnotatedElementUtils.findMergedRepeatableAnnotations(element, RateLimited.class);
    }
}

package io.github.ratelimitd.spring;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.http.server.RequestPath;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.servlet.HandlerInterceptor;
import org.springframework.web.util.ServletRequestPathUtils;

/** Limits of servlets: a filter limits routes, and an interceptor of Spring MVC limits by annotations. */
final class ServletLimits {
    private ServletLimits() {}

    /** Limits requests by the routes of the configuration. */
    static final class RouteFilter extends OncePerRequestFilter implements Ordered {
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
        protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
                throws ServletException, IOException {
            RequestPath path = ServletRequestPathUtils.parseAndCache(request);
            PathContainer asked = path.pathWithinApplication();
            UnderWay underWay = new UnderWay(limiter); // shared with annotations
            request.setAttribute(UnderWay.ATTRIBUTE, underWay);
            try {
                if (passes(limiter, request, asked.value(), response, rules.ofRoutes(request.getMethod(), asked))) {
                    chain.doFilter(request, response);
                }
            } finally {
                if (request.isAsyncStarted()) {
                    request.getAsyncContext().addListener(new AtEnd(underWay));
                } else {
                    underWay.end().join();
                }
            }
        }
    }

    /** Ends a request when the answer of another thread ends. */
    private record AtEnd(UnderWay underWay) implements AsyncListener {
        @Override
        public void onComplete(AsyncEvent event) {
            underWay.end().join();
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this); // the container has forgotten it
        }

        @Override
        public void onTimeout(AsyncEvent event) {} // onComplete follows

        @Override
        public void onError(AsyncEvent event) {} // onComplete follows
    }

    /** Limits requests by the annotations of handlers. */
    static final class AnnotationInterceptor implements HandlerInterceptor {
        private final Limiter limiter;
        private final Rules rules;

        AnnotationInterceptor(Limiter limiter, Rules rules) {
            this.limiter = limiter;
            this.rules = rules;
        }

        @Override
        public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler)
                throws IOException {
            if (request.getDispatcherType() == DispatcherType.ASYNC) {
                return true; // the continuation of a counted request
            }
            List<Limiter.Rule> limits = rules.of(handler);
            String path = request.getRequestURI().substring(request.getContextPath().length());
            return passes(limiter, request, path, response, limits);
        }
    }

    /** Decides, and answers a request that does not pass. */
    private static boolean passes(
            Limiter limiter,
            HttpServletRequest request,
            String path,
            HttpServletResponse response,
            List<Limiter.Rule> limits)
            throws IOException {
        if (limits.isEmpty()) {
            return true;
        }
        Verdict verdict = limiter.decide(new View(request, path), limits);
        if (request.getAttribute(UnderWay.ATTRIBUTE) instanceof UnderWay underWay) { // an application may lack the filter
            underWay.hold(verdict);
        }
        verdict.headers().forEach(response::setHeader);
        if (verdict.passes()) {
            request.setAttribute(Limiter.DECISION, verdict.decision());
            return true;
        }
        response.setStatus(verdict.status());
        response.getOutputStream().write(verdict.body().getBytes(StandardCharsets.UTF_8));
        return false;
    }

    private record View(HttpServletRequest request, String path) implements LimitedRequest {
        @Override
        public String method() {
            return request.getMethod();
        }

        @Override
        public List<String> headers(String name) {
            return Collections.list(request.getHeaders(name));
        }

        @Override
        public Optional<String> principal() {
            return Optional.ofNullable(request.getUserPrincipal()).map(Principal::getName);
        }

        @Override
        public Optional<String> address() {
            String address = request.getRemoteAddr();
            // Tomcat reports a unix socket like this; a TCP connection has a port.
            boolean unix = request.getRemotePort() == 0 && "127.0.0.1".equals(address);
            return Optional.ofNullable(unix ? Addresses.UNIX : address);
        }
    }
}

package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.Decision;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.beans.factory.support.RootBeanDefinition;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.core.type.AnnotationMetadata;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.web.server.ServerHttpSecurity;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.security.web.server.SecurityWebFilterChain;
import org.springframework.util.ClassUtils;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Applications, each on a server of its own: Tomcat, Netty, and a gateway on Netty. */
final class Apps {
    static final String GATEWAY = "spring.cloud.gateway.server.webflux.enabled=";

    private Apps() {}

    /** A running application. */
    record App(ConfigurableApplicationContext context) implements AutoCloseable {
        String url() {
            return "http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port");
        }

        /** Returns the class of its server. */
        String server() {
            try {
                Object server = context.getClass().getMethod("getWebServer").invoke(context);
                return server.getClass().getSimpleName();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        /** Has Tomcat listen on a unix socket, too. */
        void listenOn(Path socket) throws ReflectiveOperationException {
            Object server = context.getClass().getMethod("getWebServer").invoke(context);
            Tomcat tomcat = (Tomcat) server.getClass().getMethod("getTomcat").invoke(server);
            Connector connector = new Connector();
            connector.setProperty("unixDomainSocketPath", socket.toString());
            tomcat.getService().addConnector(connector);
        }

        @Override
        public void close() {
            context.close();
        }
    }

    static App tomcat(String... properties) {
        return run(WebApplicationType.SERVLET, OnTomcat.class, GATEWAY + false, properties);
    }

    static App netty(String... properties) {
        return run(WebApplicationType.REACTIVE, OnNetty.class, GATEWAY + false, properties);
    }

    static App gateway(String... properties) {
        return run(WebApplicationType.REACTIVE, Gateway.class, GATEWAY + true, properties);
    }

    private static App run(WebApplicationType type, Class<?> source, String gateway, String... properties) {
        List<String> all = new ArrayList<>(List.of(
                gateway,
                "server.port=0",
                "server.address=127.0.0.1",
                "spring.main.banner-mode=off",
                "spring.security.user.name=alice",
                "spring.security.user.password={noop}secret",
                "management.endpoints.web.exposure.include=health,metrics",
                "management.endpoint.health.show-components=always"));
        all.addAll(List.of(properties));
        String[] args = all.stream().map(p -> "--" + p).toArray(String[]::new);
        return new App(new SpringApplicationBuilder(source).web(type).run(args));
    }

    /** Tenants are named by a header, in capitals; some customers have more. */
    @Configuration(proxyBeanMethods = false)
    static class Tenants {
        @Bean
        CallerResolver tenant() {
            return request -> request.headers("X-Tenant").stream()
                    .findFirst()
                    .map(t -> request.method() + request.path() + t)
                    .orElse(null);
        }

        /** Brings a limit on paths of golden customers alone. */
        @Bean
        LimitResolver gold() {
            return request -> request.path().endsWith("/gold") ? OptionalLong.of(3) : OptionalLong.empty();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @Import({Tenants.class, Routed.class, Annotated.class, AnnotatedAsAWhole.class, Held.class, Later.class})
    static class OnTomcat {
        @Bean
        SecurityFilterChain security(HttpSecurity http) throws Exception {
            return http.authorizeHttpRequests(a -> a.anyRequest().permitAll())
                    .httpBasic(Customizer.withDefaults())
                    .csrf(c -> c.disable())
                    .build();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @Import({Tenants.class, Netty.class, Routed.class, Annotated.class, AnnotatedAsAWhole.class, Held.class})
    static class OnNetty {
        @Bean
        SecurityWebFilterChain security(ServerHttpSecurity http) {
            return open(http);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @Import(Netty.class)
    static class Gateway {
        @Bean
        SecurityWebFilterChain security(ServerHttpSecurity http) {
            return open(http);
        }
    }

    private static SecurityWebFilterChain open(ServerHttpSecurity http) {
        return http.authorizeExchange(a -> a.anyExchange().permitAll())
                .httpBasic(Customizer.withDefaults())
                .csrf(c -> c.disable())
                .build();
    }

    /** Has WebFlux on Netty, though Tomcat is on the class path. */
    static class Netty implements ImportBeanDefinitionRegistrar {
        private static final List<String> FACTORIES = List.of(
                "org.springframework.boot.web.embedded.netty.NettyReactiveWebServerFactory", // Spring Boot 3
                "org.springframework.boot.reactor.netty.NettyReactiveWebServerFactory"); // Spring Boot 4

        @Override
        public void registerBeanDefinitions(AnnotationMetadata importing, BeanDefinitionRegistry registry) {
            for (String name : FACTORIES) {
                if (ClassUtils.isPresent(name, null)) {
                    Class<?> factory = ClassUtils.resolveClassName(name, null);
                    registry.registerBeanDefinition("netty", new RootBeanDefinition(factory));
                }
            }
        }
    }

    private static String served(Decision decision) {
        return decision == null || decision.receipt().isEmpty() ? "served, undecided" : "served";
    }

    /** Is limited by routes of the configuration. */
    @RestController
    static class Routed {
        @RequestMapping({"/r/", "/r/{what}"})
        String serve(@RequestAttribute(name = Limiter.DECISION, required = false) Decision decision) {
            return served(decision);
        }

        @RequestMapping("/free")
        String free() {
            return "free";
        }
    }

    /** The routes of the suite's cases of middleware, and some more. */
    static String[] routes(String... more) {
        List<String[]> routes = List.of(
                new String[] {"/r/", "web", "", "1", "", ""},
                new String[] {"/r/closed", "closed", "", "1", "", ""},
                new String[] {"/r/user", "web-user", "header:X-User", "1", "", ""},
                new String[] {"/r/by-address", "web-user", "", "1", "", ""},
                new String[] {"/r/both", "web", "", "1", "", ""},
                new String[] {"/r/both", "web-user", "header:X-User", "1", "", ""},
                new String[] {"/r/customer", "customers", "header:X-User", "1", "", "bean:gold"},
                new String[] {"/r/gold", "customers", "header:X-User", "1", "", "bean:gold"},
                new String[] {"/r/phone", "phone", "header:X-Phone", "1", "", ""},
                new String[] {"/r/big", "bytes", "", "101", "", ""},
                new String[] {"/r/unknown", "no-such", "", "1", "", ""},
                new String[] {"/r/principal", "web-user", "principal", "1", "", ""},
                new String[] {"/r/tenant", "web-user", "bean:tenant", "1", "", ""},
                new String[] {"/r/read", "web-user", "header:X-User", "1", "get", ""},
                new String[] {"/r/held/*", "slots", "header:X-User", "1", "", ""},
                new String[] {"/r/held/*", "address", "header:X-User", "1", "", ""});
        List<String> properties = new ArrayList<>(List.of(more));
        properties.add("ratelimitd.trusted-proxies=127.0.0.0/8,::1");
        for (int i = 0; i < routes.size(); i++) {
            String[] route = routes.get(i);
            Map<String, String> members = Map.of(
                    "path", route[0], "policy", route[1], "by", route[2], "cost", route[3], "methods", route[4],
                    "limit", route[5]);
            String prefix = "ratelimitd.routes[" + i + "].";
            members.forEach((name, value) -> {
                if (!value.isEmpty()) {
                    properties.add(prefix + name + "=" + value);
                }
            });
        }
        return properties.toArray(String[]::new);
    }

    /** Is limited by annotations. */
    @RestController
    static class Annotated {
        @RateLimited("web")
        @RequestMapping("/a/")
        String web(@RequestAttribute(name = Limiter.DECISION, required = false) Decision decision) {
            return served(decision);
        }

        @RateLimited("closed")
        @RequestMapping("/a/closed")
        String closed() {
            return "served, though it is closed";
        }

        @RateLimited(value = "web-user", by = "header:X-User")
        @RequestMapping("/a/user")
        String user() {
            return "served";
        }

        @RateLimited("web-user")
        @RequestMapping("/a/by-address")
        String byAddress() {
            return "served";
        }

        @RateLimited("web")
        @RateLimited(value = "web-user", by = "header:X-User")
        @RequestMapping("/a/both")
        String both() {
            return "served";
        }

        @RateLimited(value = "customers", by = "header:X-User", limit = "bean:gold")
        @RequestMapping({"/a/customer", "/a/gold"})
        String customer() {
            return "served";
        }

        @RateLimited(value = "phone", by = "header:X-Phone")
        @RequestMapping("/a/phone")
        String phone() {
            return "served";
        }

        @RateLimited(value = "bytes", cost = 101)
        @RequestMapping("/a/big")
        String big() {
            return "served";
        }

        @RateLimited("no-such")
        @RequestMapping("/a/unknown")
        String unknown(@RequestAttribute(name = Limiter.DECISION, required = false) Decision decision) {
            return served(decision);
        }

        @RateLimited(value = "web-user", by = "principal")
        @RequestMapping("/a/principal")
        String principal() {
            return "served";
        }

        @RateLimited(value = "web-user", by = "bean:tenant")
        @RequestMapping("/a/tenant")
        String tenant() {
            return "served";
        }
    }

    /** Is limited as a class, but for the handler that has an annotation of its own. */
    @RestController
    @RateLimited("closed")
    static class AnnotatedAsAWhole {
        @RequestMapping("/class")
        String closed() {
            return "served, though it is closed";
        }

        @RateLimited("web")
        @RequestMapping("/class/own")
        String own() {
            return "served";
        }
    }

    /** An answer whose end a test brings about. */
    record Answer(CompletableFuture<Void> begun, CompletableFuture<String> end) {
        /** Answers by the user that asks. */
        static final Map<String, Answer> OF = new ConcurrentHashMap<>();

        static Answer of(String user) {
            return OF.computeIfAbsent(user, u -> new Answer(new CompletableFuture<>(), new CompletableFuture<>()));
        }
    }

    /** Is under a limit of what is under way: by a route, or by annotations. */
    @RestController
    static class Held {
        @RequestMapping("/r/held/now")
        String now() {
            return "served";
        }

        @RequestMapping("/r/held/throws")
        String fail() {
            throw new IllegalStateException("on purpose");
        }

        @RequestMapping("/r/held/later")
        CompletableFuture<String> later(@RequestHeader("X-User") String user) {
            Answer.of(user).begun().complete(null);
            return Answer.of(user).end();
        }

        /** On Tomcat, it is dispatched once for the Mono, and once more for the Flux. */
        @RequestMapping("/r/held/stream")
        Mono<ResponseEntity<Flux<String>>> stream(@RequestHeader("X-User") String user) {
            Answer.of(user).begun().complete(null);
            Flux<String> parts = Flux.concat(Flux.just("a part"), Mono.fromFuture(Answer.of(user).end(), true));
            return Mono.just(ResponseEntity.ok().contentType(MediaType.TEXT_EVENT_STREAM).body(parts));
        }

        @RateLimited(value = "slots", by = "header:X-User")
        @RateLimited(value = "address", by = "header:X-User")
        @RequestMapping("/a/held/now")
        String annotatedNow() {
            return now();
        }

        @RateLimited(value = "slots", by = "header:X-User")
        @RateLimited(value = "address", by = "header:X-User")
        @RequestMapping("/a/held/throws")
        String annotatedFail() {
            return fail();
        }

        @RateLimited(value = "slots", by = "header:X-User")
        @RateLimited(value = "address", by = "header:X-User")
        @RequestMapping("/a/held/later")
        CompletableFuture<String> annotatedLater(@RequestHeader("X-User") String user) {
            return later(user);
        }

        @RateLimited(value = "slots", by = "header:X-User")
        @RateLimited(value = "address", by = "header:X-User")
        @RequestMapping("/a/held/stream")
        Mono<ResponseEntity<Flux<String>>> annotatedStream(@RequestHeader("X-User") String user) {
            return stream(user);
        }
    }

    /** Answers on another thread, after which Spring MVC dispatches the request once more. */
    @RestController
    static class Later {
        @RateLimited("web")
        @RequestMapping("/later")
        Callable<String> later() {
            return () -> "served";
        }
    }
}

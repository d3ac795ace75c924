package io.github.ratelimitd.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.ratelimitd.client.RatelimitdClient;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.boot.env.YamlPropertySourceLoader;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.core.env.StandardEnvironment;
import org.springframework.core.io.ByteArrayResource;
/** The configuration, and what the README shows of it. */
class StartTest {
    private static final Path HERE = Service.ROOT.resolve("clients/spring");

    @TempDir
    Path dir;

    @Configuration(proxyBeanMethods = false)
    static class WithItsOwnClient {
        static final RatelimitdClient CLIENT = RatelimitdClient.builder("http://127.0.0.1:1").build();

        @Bean
        RatelimitdClient own() {
            return CLIENT;
        }
    }

    private static ConfigurableApplicationContext start(Map<String, Object> properties, Class<?>... sources) {
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test", properties));
        if (sources.length > 0) {
            context.register(sources);
        }
        context.register(RatelimitdAutoConfiguration.class);
        context.refresh();
        return context;
    }

    @Test
    void anApplicationWithoutAServerHasAClient() {
        try (ConfigurableApplicationContext context = start(Map.of())) {
            assertEquals(0, context.getBean(RatelimitdClient.class).failedOpen());
        }
    }

    @Test
    void theClientOfTheApplicationWins() {
        try (ConfigurableApplicationContext context = start(Map.of(), WithItsOwnClient.class)) {
            assertEquals(WithItsOwnClient.CLIENT, context.getBean(RatelimitdClient.class));
        }
    }

    @Test
    void theHealthCheckCanBeLeftOutAsThoseOfSpringBoot() {
        String own = "management.health.ratelimitd.enabled";
        String all = "management.health.defaults.enabled";
        Map<Map<String, Object>, Boolean> expected = Map.of(
                Map.of(), true,
                Map.of(own, "false"), false,
                Map.of(all, "false"), false,
                Map.of(all, "false", own, "true"), true);
        expected.forEach((properties, has) -> {
            try (ConfigurableApplicationContext context = start(properties)) {
                assertEquals(has, context.containsBean("ratelimitdHealthIndicator"), properties.toString());
            }
        });
    }

    @Test
    void whatIsWrongIsNamedAtTheStart() {
        refused("ratelimitd.routes[0]: path is login: it must begin with a slash", "routes[0].path=login", "routes[0].policy=p");
        refused("ratelimitd.routes[0]: ratelimitd: policy is empty", "routes[0].path=/");
        refused("ratelimitd: cost is 0", "routes[0].path=/", "routes[0].policy=p", "routes[0].cost=0");
        refused("ratelimitd: limit is 5: it must be bean:NAME", "routes[0].path=/", "routes[0].policy=p", "routes[0].limit=5");
        refused("No bean named 'plan'", "routes[0].path=/", "routes[0].policy=p", "routes[0].limit=bean:plan");
        refused("ratelimitd: by is user", "by=user");
        refused("No bean named 'tenant'", "by=bean:tenant");
        refused("ratelimitd.trusted-proxies has 10.0.0.1/8", "trusted-proxies=10.0.0.1/8");
        refused("ratelimitd: baseUrls[0] is not of HTTP", "urls=ftp://limits");
        refused("ratelimitd: retries is 101", "retries=101");
    }

    private static void refused(String message, String... properties) {
        Map<String, Object> all = new LinkedHashMap<>();
        for (String property : properties) {
            String[] parts = property.split("=", 2);
            all.put("ratelimitd." + parts[0], parts[1]);
        }
        Throwable error = assertThrows(RuntimeException.class, () -> start(all).close(), message);
        StringBuilder messages = new StringBuilder();
        for (Throwable e = error; e != null; e = e.getCause()) {
            messages.append(e.getMessage()).append('\n');
        }
        assertTrue(messages.toString().contains(message), messages.toString());
    }

    @Test
    void theReadmesConfigurationIsOne() throws Exception {
        byte[] yaml = blocks("yaml").get(0).getBytes(StandardCharsets.UTF_8);
        StandardEnvironment environment = new StandardEnvironment();
        new YamlPropertySourceLoader()
                .load("README.md", new ByteArrayResource(yaml))
                .forEach(environment.getPropertySources()::addLast);
        RatelimitdProperties properties =
                Binder.get(environment).bind("ratelimitd", RatelimitdProperties.class).get();
        assertEquals(List.of("10.0.0.0/8"), properties.trustedProxies());
        assertEquals(List.of("login", "api"), properties.routes().stream().map(r -> r.policy()).toList());
        Callers callers = new Callers(new Addresses(properties.trustedProxies()), name -> request -> name);
        Rules rules = new Rules(properties, callers, name -> request -> OptionalLong.empty());
        assertEquals("login", rules.ofRoutes("POST", path("/login")).get(0).policy());
        assertEquals(List.of(), rules.ofRoutes("GET", path("/login")));
    }

    private static org.springframework.http.server.PathContainer path(String text) {
        return org.springframework.http.server.PathContainer.parsePath(text);
    }

    @Test
    void theReadmesClassesCompile() throws Exception {
        List<String> arguments = new ArrayList<>();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        arguments.addAll(List.of("-proc:none", "-cp", classes, "-d", dir.toString()));
        for (String block : blocks("java")) {
            Path source = dir.resolve("Source" + arguments.size() + ".java");
            Files.writeString(source, block);
            arguments.add(source.toString());
        }
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        int code = ToolProvider.getSystemJavaCompiler().run(null, null, errors, arguments.toArray(String[]::new));
        assertEquals(0, code, errors.toString(StandardCharsets.UTF_8));
    }

    private static List<String> blocks(String language) throws Exception {
        String readme = Files.readString(HERE.resolve("README.md"));
        List<String> blocks = Pattern.compile("(?s)```" + language + "\n(.*?)```").matcher(readme).results()
                .map(match -> match.group(1))
                .toList();
        assertFalse(blocks.isEmpty(), "README.md has no " + language);
        return blocks;
    }
}

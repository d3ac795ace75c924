package io.github.ratelimitd.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.github.ratelimitd.client.Demand;
import io.github.ratelimitd.client.RatelimitdClient;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Asks applications on Tomcat and on Netty, which a real ratelimitd limits. */
class WebTest {
    private static final String NOBODY = "ratelimitd.urls=http://127.0.0.1:1";
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private static Service service;
    private static RatelimitdClient limits;
    /** Applications by server and by what decides about their requests. */
    private static final Map<String, Apps.App> APPS = new LinkedHashMap<>();

    @BeforeAll
    static void serve() {
        service = new Service();
        limits = RatelimitdClient.builder(service.url).timeout(Duration.ofSeconds(20)).build();
        String served = "ratelimitd.urls=" + service.url;
        APPS.put("tomcat", Apps.tomcat(Apps.routes(served, "ratelimitd.timeout=20s")));
        APPS.put("netty", Apps.netty(Apps.routes(served, "ratelimitd.timeout=20s")));
        APPS.put("tomcat, none", Apps.tomcat(Apps.routes(NOBODY)));
        APPS.put("netty, none", Apps.netty(Apps.routes(NOBODY)));
        APPS.put("tomcat, none, closed", Apps.tomcat(Apps.routes(NOBODY, "ratelimitd.fail-closed=true")));
        APPS.put("netty, none, closed", Apps.netty(Apps.routes(NOBODY, "ratelimitd.fail-closed=true")));
    }

    @AfterAll
    static void stop() {
        APPS.values().forEach(Apps.App::close);
        limits.close();
        service.close();
    }

    private static Stream<String> servers() {
        return Stream.of("tomcat", "netty");
    }

    private static Stream<DynamicTest> each(Check check) {
        return servers().map(server -> DynamicTest.dynamicTest(server, () -> check.of(server)));
    }

    @FunctionalInterface
    private interface Check {
        void of(String server) throws Exception;
    }

    @TestFactory
    Stream<DynamicTest> theServersAreReal() {
        return each(server -> {
            String expected = server.equals("tomcat") ? "TomcatWebServer" : "NettyWebServer";
            assertEquals(expected, APPS.get(server).server());
        });
    }

    @TestFactory
    Stream<DynamicTest> cases() {
        List<Map<String, Object>> cases = Service.read("cases/web.json");
        return servers().flatMap(server -> Stream.of("/r", "/a").flatMap(prefix -> cases.stream()
                .map(c -> DynamicTest.dynamicTest(server + prefix + ": " + c.get("name"), () -> play(server, prefix, c)))));
    }

    private static void play(String server, String prefix, Map<String, Object> c) throws Exception {
        String name = server + (c.containsKey("service") ? ", none" : "") + (c.containsKey("fail_closed") ? ", closed" : "");
        Apps.App app = APPS.get(name);
        Map<String, String> names = new LinkedHashMap<>();
        double undecided = counted(app, "undecided");
        for (Object each : (List<?>) c.get("requests")) {
            Map<String, Object> request = Service.mapOf(each);
            List<String> headers = new ArrayList<>();
            Service.mapOf(request.get("headers")).forEach((h, value) -> {
                headers.add(h);
                headers.add(named(String.valueOf(value), names));
            });
            String method = (String) request.getOrDefault("method", "GET");
            expect(ask(app, method, prefix + request.get("path"), headers), Service.mapOf(request.get("expect")));
        }
        double expected = ((Number) c.getOrDefault("undecided", 0)).doubleValue();
        assertEquals(undecided + expected, counted(app, "undecided"));
    }

    private static void expect(HttpResponse<String> response, Map<String, Object> expected) {
        if (expected.containsKey("status")) {
            assertEquals(expected.get("status"), response.statusCode(), response.body());
        }
        Service.mapOf(expected.get("headers")).forEach((name, value) ->
                assertEquals(value, response.headers().firstValue(name).orElse(null), name));
        Service.mapOf(expected.get("body")).forEach((name, value) ->
                assertEquals(value, parsed(response.body()).get(name), response.body()));
        if (response.statusCode() == 200) {
            boolean decided = response.headers().firstValue("X-RateLimit-Limit").isPresent();
            assertEquals(decided ? "served" : "served, undecided", response.body());
        }
    }

    private static Map<String, Object> parsed(String json) {
        return org.springframework.boot.json.JsonParserFactory.getJsonParser().parseMap(json);
    }

    /** Replaces $name: an address or a subnet that no other case has, or else a name. */
    private static String named(String text, Map<String, String> names) {
        Matcher matcher = Pattern.compile("\\$(\\w+)").matcher(text);
        return matcher.replaceAll(match -> names.computeIfAbsent(match.group(1), WebTest::made));
    }

    private static String made(String name) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        return switch (name) {
            case "address" -> "10." + random.nextInt(256) + "." + random.nextInt(256) + "." + random.nextInt(256);
            case "subnet" -> "2001:db8:" + Integer.toHexString(random.nextInt(0x1000, 0x10000)) + ":"
                    + Integer.toHexString(random.nextInt(0x1000, 0x10000));
            default -> name + UUID.randomUUID();
        };
    }

    private static HttpResponse<String> ask(Apps.App app, String method, String path, List<String> headers)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(app.url() + path))
                .method(method, HttpRequest.BodyPublishers.noBody());
        if (!headers.isEmpty()) {
            request.headers(headers.toArray(String[]::new));
        }
        return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private static int status(Apps.App app, String method, String path, String... headers) throws Exception {
        return ask(app, method, path, List.of(headers)).statusCode();
    }

    /** Returns how many requests have had an outcome, by the metric. */
    private static double counted(Apps.App app, String outcome) throws Exception {
        return value(app, "ratelimitd.requests?tag=outcome:" + outcome);
    }

    private static double value(Apps.App app, String metric) throws Exception {
        HttpResponse<String> answer = ask(app, "GET", "/actuator/metrics/" + metric, List.of());
        if (answer.statusCode() == 404) {
            return 0; // nothing has been counted
        }
        List<?> measurements = (List<?>) parsed(answer.body()).get("measurements");
        return ((Number) Service.mapOf(measurements.get(0)).get("value")).doubleValue();
    }

    @TestFactory
    Stream<DynamicTest> aPrincipalIsCountedWhereverItComesFrom() {
        return each(server -> {
            for (String prefix : List.of("/r", "/a")) {
                service(server, prefix);
            }
        });
    }

    /** Alice has two units a day, which both prefixes share. */
    private static void service(String server, String prefix) throws Exception {
        Apps.App app = APPS.get(server);
        String password = Base64.getEncoder().encodeToString("alice:secret".getBytes(StandardCharsets.UTF_8));
        String nobody = made("address");
        int first = status(app, "GET", prefix + "/principal", "X-Forwarded-For", nobody);
        assertEquals(200, first);
        int passed = 0;
        for (int i = 0; i < 3; i++) {
            String authorization = "Basic " + password;
            int status = status(
                    app, "GET", prefix + "/principal", "X-Forwarded-For", made("address"), "Authorization", authorization);
            passed += status == 200 ? 1 : 0;
            assertTrue(status == 200 || status == 429, "status " + status);
        }
        assertTrue(passed <= 2, "one principal had " + passed + " units of 2");
        assertEquals(200, status(app, "GET", prefix + "/principal", "X-Forwarded-For", nobody));
        assertEquals(429, status(app, "GET", prefix + "/principal", "X-Forwarded-For", nobody));
    }

    @TestFactory
    Stream<DynamicTest> aBeanNamesCallers() {
        return each(server -> {
            for (String path : List.of("/r/tenant", "/a/tenant")) {
                String tenant = made("tenant");
                for (int expected : List.of(200, 200, 429)) {
                    String address = made("address");
                    assertEquals(
                            expected,
                            status(APPS.get(server), "GET", path, "X-Tenant", tenant, "X-Forwarded-For", address),
                            path);
                }
            }
        });
    }

    @TestFactory
    Stream<DynamicTest> anotherSpellingOfAPathIsLimitedToo() {
        return each(server -> {
            Apps.App app = APPS.get(server);
            for (String path : List.of("/r/user", "/r/%75ser", "/a/user", "/a/%75ser")) {
                HttpResponse<String> answer = ask(app, "GET", path, List.of("X-User", made("user")));
                assertEquals("1", answer.headers().firstValue("X-RateLimit-Remaining").orElse(null), path);
            }
        });
    }

    @TestFactory
    Stream<DynamicTest> aRouteOfGetIsOneOfHeadAndOfNothingElse() {
        return each(server -> {
            Apps.App app = APPS.get(server);
            String user = made("user");
            assertEquals(200, status(app, "HEAD", "/r/read", "X-User", user));
            assertEquals(200, status(app, "POST", "/r/read", "X-User", user));
            assertEquals(200, status(app, "GET", "/r/read", "X-User", user));
            assertEquals(429, status(app, "HEAD", "/r/read", "X-User", user));
            assertEquals(200, status(app, "POST", "/r/read", "X-User", user));
        });
    }

    @TestFactory
    Stream<DynamicTest> aHandlersAnnotationReplacesThatOfItsClass() {
        return each(server -> {
            Apps.App app = APPS.get(server);
            assertEquals(429, status(app, "GET", "/class", "X-Forwarded-For", made("address")));
            assertEquals(200, status(app, "GET", "/class/own", "X-Forwarded-For", made("address")));
            assertEquals(200, status(app, "GET", "/free"));
        });
    }

    @Test
    void aHandlerThatAnswersLaterIsCountedOnce() throws Exception {
        String address = made("address");
        for (String remaining : List.of("2", "1", "0")) {
            HttpResponse<String> answer = ask(APPS.get("tomcat"), "GET", "/later", List.of("X-Forwarded-For", address));
            assertEquals(200, answer.statusCode());
            assertEquals(remaining, answer.headers().firstValue("X-RateLimit-Remaining").orElse(null));
        }
    }

    @TestFactory
    Stream<DynamicTest> unitsAreReleasedWithTheAnswer() {
        return servers().flatMap(server -> Stream.of("/r", "/a").map(prefix -> DynamicTest.dynamicTest(
                server + prefix, () -> releases(APPS.get(server), prefix + "/held"))));
    }

    private static void releases(Apps.App app, String path) throws Exception {
        for (String end : List.of("now", "throws")) {
            String user = made("user");
            for (int asked = 1; asked <= 2; asked++) {
                assertEquals(end.equals("now") ? 200 : 500, status(app, "GET", path + "/" + end, "X-User", user));
                expectNoneUnderWay(user, asked);
            }
        }
        for (String kind : List.of("/later", "/stream")) {
            for (String end : List.of("well", "badly", "abandoned")) {
                String user = made("user");
                CompletableFuture<HttpResponse<String>> answer = begin(app, path + kind, user);
                HttpResponse<String> denied = ask(app, "GET", path + kind, List.of("X-User", user));
                assertEquals(429, denied.statusCode(), kind);
                String policy = denied.headers().firstValue("RateLimit-Policy").orElse(null);
                assertEquals("\"at-once\";q=1;qu=\"concurrent-requests\"", policy);
                end(answer, Apps.Answer.of(user), end);
                if (end.equals("abandoned") && app.server().startsWith("Tomcat")) { // which tells when it writes
                    Apps.Answer.of(user).end().complete("served");
                }
                expectNoneUnderWay(user, 1);
            }
        }
    }

    /** Asks, and returns once the handler was called. */
    private static CompletableFuture<HttpResponse<String>> begin(Apps.App app, String path, String user) throws Exception {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(app.url() + path)).header("X-User", user).build();
        CompletableFuture<HttpResponse<String>> answer = HTTP.sendAsync(request, HttpResponse.BodyHandlers.ofString());
        Apps.Answer.of(user).begun().get(60, TimeUnit.SECONDS);
        return answer;
    }

    private static void end(CompletableFuture<HttpResponse<String>> answer, Apps.Answer handler, String how) throws Exception {
        switch (how) {
            case "well" -> {
                handler.end().complete("served");
                assertTrue(answer.get(60, TimeUnit.SECONDS).body().contains("served"));
            }
            case "badly" -> {
                handler.end().completeExceptionally(new IllegalStateException("on purpose"));
                answer.handle((response, error) -> null).get(60, TimeUnit.SECONDS); // it is a 500, or is cut off
            }
            default -> answer.cancel(true);
        }
    }

    /** Waits until no unit of a user is under way. What counts elsewhere stays. */
    private static void expectNoneUnderWay(String user, long asked) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (limits.check(new Demand("slots", user)).used() > 0) {
            assertTrue(System.nanoTime() < deadline, "a unit is not released");
            Thread.sleep(5);
        }
        assertEquals(asked, limits.check(new Demand("address", user)).used());
    }

    @TestFactory
    Stream<DynamicTest> unitsOfAClientThatIsGoneBeforeTheyAreTakenAreReleased() {
        return each(server -> {
            CompletableFuture<Void> asked = new CompletableFuture<>();
            CompletableFuture<Void> gone = new CompletableFuture<>();
            CompletableFuture<String> refunded = new CompletableFuture<>();
            HttpServer slow = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            slow.createContext("/v1/take", exchange -> {
                asked.complete(null);
                gone.join();
                answer(exchange, "{\"allowed\":true,\"policy\":\"slots\",\"limit\":1,\"remaining\":0,\"used\":1,"
                        + "\"reset_after_ms\":0,\"retry_after_ms\":0,\"limits\":[],\"mode\":\"enforce\",\"degraded\":false,"
                        + "\"receipt\":\"both\",\"release\":\"slot\"}");
            });
            slow.createContext("/v1/refund", exchange -> {
                refunded.complete(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
                answer(exchange, "{\"refunded\":true}");
            });
            slow.start();
            String[] properties =
                    Apps.routes("ratelimitd.urls=http://127.0.0.1:" + slow.getAddress().getPort(), "ratelimitd.timeout=60s");
            Apps.App app = server.equals("tomcat") ? Apps.tomcat(properties) : Apps.netty(properties);
            APPS.put(server + ", slow", app);
            HttpRequest request = HttpRequest.newBuilder(URI.create(app.url() + "/r/held/now"))
                    .header("X-User", made("user"))
                    .build();
            CompletableFuture<?> answer = HTTP.sendAsync(request, HttpResponse.BodyHandlers.ofString());
            asked.get(60, TimeUnit.SECONDS);
            answer.cancel(true);
            status(app, "GET", "/free"); // Netty has seen it by now, as a rule
            gone.complete(null);
            assertEquals("{\"receipt\":\"slot\"}", refunded.get(60, TimeUnit.SECONDS));
            slow.stop(0);
        });
    }

    private static void answer(HttpExchange exchange, String json) throws IOException {
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        byte[] body = json.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    @TestFactory
    Stream<DynamicTest> aFailedReleaseHarmsNoRequest() {
        return each(server -> {
            Service dying = new Service();
            String[] properties = Apps.routes("ratelimitd.urls=" + dying.url, "ratelimitd.timeout=20s");
            Apps.App app = server.equals("tomcat") ? Apps.tomcat(properties) : Apps.netty(properties);
            APPS.put(server + ", dying", app);
            String user = made("user");
            CompletableFuture<HttpResponse<String>> answer = begin(app, "/r/held/later", user);
            dying.close();
            Apps.Answer.of(user).end().complete("served");
            HttpResponse<String> response = answer.get(60, TimeUnit.SECONDS);
            assertEquals(200, response.statusCode());
            assertEquals("served", response.body());
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (value(app, "ratelimitd.unreleased?tag=policy:slots%2Baddress") != 1) {
                assertTrue(System.nanoTime() < deadline, "the failure is not counted");
                Thread.sleep(5);
            }
        });
    }

    @Test
    void aUnixSocketOfTomcatIsAProxyThatCanBeTrusted(@TempDir Path dir) throws Exception {
        Path socket = dir.resolve("app.sock");
        try (Apps.App app = Apps.tomcat(
                "ratelimitd.urls=" + service.url,
                "ratelimitd.timeout=20s",
                "ratelimitd.trusted-proxies=unix",
                "ratelimitd.routes[0].path=/free",
                "ratelimitd.routes[0].policy=sms-send")) {
            app.listenOn(socket);
            String address = made("address");
            for (String status : List.of("200", "200", "200", "429")) {
                assertEquals(status, statusByUnix(socket, address));
            }
            assertEquals("200", statusByUnix(socket, made("address")));
            for (int status : List.of(200, 200, 200, 429)) { // the address of TCP, whatever the header says
                assertEquals(status, status(app, "GET", "/free", "X-Forwarded-For", made("address")));
            }
        }
    }

    private static String statusByUnix(Path socket, String forwardedFor) throws IOException {
        try (SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
            String request = "GET /free HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Forwarded-For: " + forwardedFor;
            channel.write(ByteBuffer.wrap((request + "\r\n\r\n").getBytes(StandardCharsets.UTF_8)));
            byte[] answer = Channels.newInputStream(channel).readAllBytes();
            return new String(answer, StandardCharsets.UTF_8).split(" ")[1];
        }
    }

    @TestFactory
    Stream<DynamicTest> healthTellsWhetherItDecides() {
        return each(server -> {
            assertEquals("UP", health(APPS.get(server)));
            assertEquals("DOWN", health(APPS.get(server + ", none")));
        });
    }

    private static Object health(Apps.App app) throws Exception {
        Map<String, Object> health = parsed(ask(app, "GET", "/actuator/health", List.of()).body());
        return Service.mapOf(Service.mapOf(health.get("components")).get("ratelimitd")).get("status");
    }

    @TestFactory
    Stream<DynamicTest> requestsAreCountedByOutcome() {
        return each(server -> {
            Apps.App app = APPS.get(server);
            double passed = counted(app, "passed");
            double denied = counted(app, "denied");
            double refused = counted(app, "refused");
            assertEquals(200, status(app, "GET", "/r/", "X-Forwarded-For", made("address")));
            assertEquals(429, status(app, "GET", "/r/closed"));
            assertEquals(400, status(app, "GET", "/a/", "X-Forwarded-For", "unknown"));
            assertEquals(passed + 1, counted(app, "passed"));
            assertEquals(denied + 1, counted(app, "denied"));
            assertEquals(refused + 1, counted(app, "refused"));
        });
    }

    @Test
    void theGatewayAsksForItsRoutes() throws Exception {
        Apps.App gateway = gateway("gateway", "ratelimitd.urls=" + service.url);
        assertEquals("NettyWebServer", gateway.server());
        String address = made("address");
        for (String remaining : List.of("2", "1", "0")) {
            HttpResponse<String> answer = ask(gateway, "GET", "/free", List.of("X-Forwarded-For", address));
            assertEquals(200, answer.statusCode());
            assertEquals("free", answer.body());
            assertEquals(remaining, answer.headers().firstValue("X-RateLimit-Remaining").orElse(null));
        }
        HttpResponse<String> denied = ask(gateway, "GET", "/free", List.of("X-Forwarded-For", address));
        assertEquals(429, denied.statusCode());
        assertEquals("3600", denied.headers().firstValue("Retry-After").orElse(null));
        assertEquals(200, status(gateway, "GET", "/free", "X-Forwarded-For", made("address")));
    }

    @Test
    void routesOfAGatewayReleaseTheirUnits() throws Exception {
        Apps.App gateway = gateway(
                "gateway, routes",
                "ratelimitd.urls=" + service.url,
                "spring.cloud.gateway.server.webflux.routes[1].id=held",
                "spring.cloud.gateway.server.webflux.routes[1].uri=" + APPS.get("netty, none").url(),
                "spring.cloud.gateway.server.webflux.routes[1].predicates[0]=Path=/r/held/*",
                "ratelimitd.by=header:X-User",
                "ratelimitd.routes[0].path=/r/held/*",
                "ratelimitd.routes[0].policy=slots",
                "ratelimitd.routes[1].path=/r/held/*",
                "ratelimitd.routes[1].policy=address");
        String user = made("user");
        CompletableFuture<HttpResponse<String>> answer = begin(gateway, "/r/held/later", user);
        assertEquals(429, status(gateway, "GET", "/r/held/later", "X-User", user));
        end(answer, Apps.Answer.of(user), "well");
        expectNoneUnderWay(user, 1);
    }

    @Test
    void theGatewayLetsRequestsPassThatNobodyDecides() throws Exception {
        Apps.App open = gateway("gateway, none", NOBODY);
        assertEquals(200, status(open, "GET", "/free"));
        assertEquals(1.0, counted(open, "undecided"));
        Apps.App closed = gateway("gateway, none, closed", NOBODY, "ratelimitd.fail-closed=true");
        assertEquals(503, status(closed, "GET", "/free"));
    }

    /** Starts a gateway, which is closed with all others: its end closes connections of each Netty in the process. */
    private static Apps.App gateway(String name, String... properties) {
        Apps.App gateway = Apps.gateway(gatewayOf(properties));
        APPS.put(name, gateway);
        return gateway;
    }

    /** Has one route, to the application on Netty, where nothing is limited. */
    private static String[] gatewayOf(String... more) {
        String route = "spring.cloud.gateway.server.webflux.routes[0].";
        List<String> properties = new ArrayList<>(List.of(
                "ratelimitd.trusted-proxies=127.0.0.0/8",
                "ratelimitd.timeout=20s",
                route + "id=free",
                route + "uri=" + APPS.get("netty").url(),
                route + "predicates[0]=Path=/free",
                route + "filters[0].name=RequestRateLimiter",
                route + "filters[0].args.ratelimitd.policy=web"));
        properties.addAll(List.of(more));
        return properties.toArray(String[]::new);
    }
}

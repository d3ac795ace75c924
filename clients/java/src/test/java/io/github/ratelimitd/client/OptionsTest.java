package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The options that a client refuses, by names. */
class OptionsTest {
    private static final String URL = "http://127.0.0.1:1";

    @TestFactory
    Stream<DynamicTest> wrongOptionsAreNamed() {
        Map<String, Consumer<RatelimitdClientBuilder>> wrong = Map.ofEntries(
                Map.entry("timeout is PT0S: it must be from a millisecond to a day", b -> b.timeout(Duration.ZERO)),
                Map.entry("timeout is PT-1S: it must be from a millisecond to a day", b -> b.timeout(Duration.ofSeconds(-1))),
                Map.entry("timeout is PT24H0.001S: it must be from a millisecond to a day", b -> b.timeout(Duration.ofDays(1).plusMillis(1))),
                Map.entry("probeInterval is PT0S: it must be from a millisecond to a day", b -> b.probeInterval(Duration.ZERO)),
                Map.entry("retries is -1: it must be from 0 to 100", b -> b.retries(-1)),
                Map.entry("retries is 101: it must be from 0 to 100", b -> b.retries(101)),
                Map.entry("concurrency is 0: it must be from 1 to 256", b -> b.concurrency(0)),
                Map.entry("concurrency is 257: it must be from 1 to 256", b -> b.concurrency(257)),
                Map.entry("maxFailures is 0: it must be 1 or more", b -> b.maxFailures(0)),
                Map.entry("token is not a bearer token: it must be printable ASCII without blanks", b -> b.token("a\nb")),
                Map.entry(
                        "header is not one that can be sent: it must be a header's name and value that the JDK's HTTP client sends",
                        b -> b.header("X-Secret", "a\r\nb")));
        return wrong.entrySet().stream().map(entry -> DynamicTest.dynamicTest(entry.getKey(), () -> {
            RatelimitdClientBuilder builder = RatelimitdClient.builder(URL);
            IllegalArgumentException error =
                    assertThrows(IllegalArgumentException.class, () -> entry.getValue().accept(builder));
            assertEquals("ratelimitd: " + entry.getKey(), error.getMessage());
        }));
    }

    @Test
    void wrongAddressesAreNamedAndNotRepeated() {
        for (String url : List.of(
                "", "127.0.0.1:8080", "ftp://host", "http://", "http://user:hidden@host", "http://host/?a=hidden", "http://host/#hidden",
                "http://ho st/hidden", "http://host:0", "http://host:65536", "mailto:hidden@host")) {
            IllegalArgumentException error =
                    assertThrows(IllegalArgumentException.class, () -> RatelimitdClient.builder(URL, url), url);
            assertEquals("ratelimitd: baseUrls[1] is", error.getMessage().substring(0, 26), url);
            assertFalse(error.getMessage().contains("hidden"), error.getMessage());
        }
        assertThrows(IllegalArgumentException.class, RatelimitdClient::builder);
    }

    @Test
    void nullsAreNamed() {
        Map<String, Runnable> wrong = Map.of(
                "policy", () -> new Demand(null, "a"),
                "identifier", () -> new Demand("sms-send", null),
                "demands", () -> Call.take((Demand[]) null),
                "receipt", () -> Call.confirm(null),
                "reservation", () -> Call.settle(null),
                "hold", () -> Call.reserve(null, new Demand("sms-send", "a")),
                "key", () -> Call.take(new Demand("sms-send", "a")).withIdempotencyKey(null),
                "timeout", () -> RatelimitdClient.builder(URL).timeout(null),
                "token", () -> RatelimitdClient.builder(URL).token(null),
                "baseUrls[0]", () -> RatelimitdClient.builder((String) null));
        wrong.forEach((field, make) ->
                assertEquals(field, assertThrows(NullPointerException.class, make::run).getMessage()));
    }

    @Test
    void wrongCallsAreNamedAndNotSent() {
        Demand demand = new Demand("sms-send", "a");
        Demand broken = new Demand("sms-send", "hidden\ud800");
        Map<Call, String> wrong = Map.ofEntries(
                Map.entry(Call.take(), "demands: A call has at least one demand."),
                Map.entry(Call.take(broken), "identifier: It must be valid Unicode, without a lone surrogate."),
                Map.entry(Call.take(demand, broken), "demands[1].identifier: It must be valid Unicode, without a lone surrogate."),
                Map.entry(Call.take(new Demand("\udc00", "a")), "policy: It must be valid Unicode, without a lone surrogate."),
                Map.entry(Call.take(new Demand("sms-send", "a".repeat(70_000))), "demands: They make the call longer than 65536 bytes."),
                Map.entry(Call.reserve(Duration.ZERO, demand), "reserve_ms: It must be whole milliseconds, from 1 to an hour."),
                Map.entry(Call.reserve(Duration.ofNanos(1), demand), "reserve_ms: It must be whole milliseconds, from 1 to an hour."),
                Map.entry(Call.reserve(Duration.ofSeconds(-1), demand), "reserve_ms: It must be whole milliseconds, from 1 to an hour."),
                Map.entry(Call.settle(""), "reservation: It must be given back as it was answered."),
                Map.entry(
                        Call.take(demand).withIdempotencyKey(""),
                        "idempotency_key: It must be 1 to 255 bytes of printable ASCII, without a blank at either end."),
                Map.entry(
                        Call.take(demand).withIdempotencyKey("a".repeat(256)),
                        "idempotency_key: It must be 1 to 255 bytes of printable ASCII, without a blank at either end."),
                Map.entry(call(Op.TAKE, demand, Optional.of(Duration.ofSeconds(1)), Optional.empty()), "reserve_ms: Only a check reserves."),
                Map.entry(call(Op.TAKE, demand, Optional.empty(), Optional.of("r")), "reservation: Only a record settles a reservation."));
        try (RatelimitdClient client = RatelimitdClient.builder(URL).build()) {
            wrong.forEach((call, message) -> {
                InvalidCallException error = assertThrows(InvalidCallException.class, () -> client.send(call));
                String op = call.op().name().toLowerCase(Locale.ROOT);
                assertEquals("ratelimitd: " + op + ": " + message, error.getMessage());
                assertEquals(0, error.problem().orElseThrow().status());
                assertEquals(Optional.of(Recorded.NO), error.recorded());
                assertEquals(error.getMessage(), client.sendAsync(call).handle((d, e) -> e.getMessage()).join());
            });
            Call long1 = Call.take(new Demand("sms-send", "a".repeat(60_000)));
            InvalidCallException error =
                    assertThrows(InvalidCallException.class, () -> client.batch(Collections.nCopies(20, long1)));
            assertEquals("operations", error.problem().orElseThrow().field().orElseThrow());
        }
    }

    private static Call call(Op op, Demand demand, Optional<Duration> reserve, Optional<String> reservation) {
        return new Call(op, List.of(demand), reserve, reservation, OptionalLong.empty(), Optional.empty(), Optional.empty());
    }

    @Test
    void tokensAndHeadersAreSentToThePathOfTheAddress() {
        try (Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client = RatelimitdClient.builder(service.url() + "/below")
                        .timeout(Duration.ofSeconds(60))
                        .token("secret")
                        .header("X-Tenant", "a")
                        .header("Accept", "text/html")
                        .build()) {
            client.take(new Demand("sms-send", "a"));
            Scripted.Request request = service.requests.get(0);
            assertEquals("/below/v1/take", request.path());
            assertEquals("Bearer secret", request.headers().get("authorization"));
            assertEquals("a", request.headers().get("x-tenant"));
            assertEquals("application/json, application/problem+json", request.headers().get("accept"));
            assertEquals("{\"policy\":\"sms-send\",\"identifier\":\"a\"}", request.body());
        }
    }

    @Test
    void textsOfCallsHaveNoIdentifier() {
        Call call = Call.take(new Demand("sms-send", "hidden")).withIdempotencyKey("hidden");
        assertEquals("Call[op=TAKE, demands=[Demand[policy=sms-send, cost=1]]]", call.toString());
    }
}

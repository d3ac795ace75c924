package io.github.ratelimitd.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Callers are named as the other ways into ratelimitd name them. */
class CallersTest {
    private static final Callers CALLERS = new Callers(
            new Addresses(List.of("127.0.0.0/8", "::ffff:192.0.2.0/120", "2001:db8::/32")),
            name -> request -> name.isEmpty() ? null : name);

    private record Request(Map<String, List<String>> sent, Optional<String> principal, Optional<String> address)
            implements LimitedRequest {
        @Override
        public String method() {
            return "GET";
        }

        @Override
        public String path() {
            return "/";
        }

        @Override
        public List<String> headers(String name) {
            return sent.getOrDefault(name.toLowerCase(Locale.ROOT), List.of());
        }
    }

    private static LimitedRequest from(String address, String... forwardedFor) {
        return new Request(Map.of("x-forwarded-for", List.of(forwardedFor)), Optional.empty(), Optional.of(address));
    }

    private static LimitedRequest with(String header, String... values) {
        return new Request(Map.of(header, List.of(values)), Optional.empty(), Optional.of("203.0.113.7"));
    }

    private static String caller(String by, LimitedRequest request) {
        return CALLERS.by(by).callerOf(request);
    }

    @TestFactory
    Stream<DynamicTest> addresses() {
        return Service.read("addresses.json").stream()
                .map(c -> DynamicTest.dynamicTest((String) c.get("why"), () -> {
                    String address = (String) c.get("address");
                    assertEquals(c.get("caller"), caller("ip", from("127.0.0.1", address)));
                    assertEquals("name\n" + address, caller("header:X-User", with("x-user", address)));
                }));
    }

    @Test
    void onlyTrustedProxiesAreBelieved() {
        assertEquals("203.0.113.7", caller("ip", from("203.0.113.7", "198.51.100.1")));
        assertEquals("198.51.100.1", caller("ip", from("192.0.2.9", "198.51.100.1")));
        assertEquals("198.51.100.1", caller("ip", from("0:0:0:0:0:ffff:c000:209", "198.51.100.1")));
        assertEquals("198.51.100.1", caller("ip", from("2001:db8::1", "6.6.6.6, 198.51.100.1", "127.0.0.9")));
        assertEquals(null, caller("ip", from("127.0.0.1", "unknown")));
        assertEquals("unknown", caller("ip", new Request(Map.of(), Optional.empty(), Optional.empty())));
    }

    @Test
    void aUnixSocketIsTrustedByItsName() {
        Callers callers = new Callers(new Addresses(List.of("unix", "10.0.0.0/8")), name -> null);
        Callers.By ip = callers.by("ip");
        assertEquals("203.0.113.7", ip.callerOf(from("unix", "203.0.113.7")));
        assertEquals("198.51.100.1", ip.callerOf(from("unix", "203.0.113.7, 198.51.100.1, 10.0.0.1")));
        assertEquals("203.0.113.7", ip.callerOf(from("unix", "203.0.113.7, unix:"))); // as nginx writes one
        assertEquals("unknown", ip.callerOf(from("unix")));
        assertEquals("127.0.0.1", ip.callerOf(from("127.0.0.1", "203.0.113.7")));
        assertEquals("unknown", caller("ip", from("unix", "203.0.113.7")));
    }

    @Test
    void aCallerWithoutANameIsKnownByTheAddress() {
        assertEquals("ip\n203.0.113.7", caller("header:X-User", with("x-other", "a")));
        assertEquals("ip\n203.0.113.7", caller("header:X-User", with("x-user", "a", "b")));
        assertEquals("ip\n203.0.113.7", caller("principal", with("x-user", "a")));
        assertEquals("ip\n203.0.113.7", caller("bean:", with("x-user", "a")));
        assertEquals("tenant", caller("bean:tenant", with("x-user", "a")));
    }

    @Test
    void aPrincipalThatCouldPassForAnAddressIsNone() {
        assertEquals("alice", caller("principal", new Request(Map.of(), Optional.of("alice"), Optional.empty())));
        assertEquals(
                "name\n203.0.113.7",
                caller("principal", new Request(Map.of(), Optional.of("203.0.113.7"), Optional.empty())));
    }

    @Test
    void aKeyIsOneOfTwoHeadersAndNobodyByBoth() {
        assertEquals("k", caller("api-key", with("x-api-key", "k")));
        assertEquals("t", caller("api-key", with("authorization", "bearer t ")));
        assertEquals("ip\n203.0.113.7", caller("api-key", with("authorization", "Basic dTpw")));
        Map<String, List<String>> both = Map.of("x-api-key", List.of("k"), "authorization", List.of("Bearer t"));
        assertEquals("ip\n203.0.113.7", caller("api-key", new Request(both, Optional.empty(), Optional.of("203.0.113.7"))));
    }

    @Test
    void aHeadersBytesAreUtf8() {
        String asRead = new String("jürgen".getBytes(StandardCharsets.UTF_8), StandardCharsets.ISO_8859_1);
        assertEquals("jürgen", caller("header:X-User", with("x-user", asRead)));
        // By sha256 of the byte fc, as printf '\374' | sha256sum writes it.
        assertEquals("sha256\n98722e2ebed8ed3d3652e11e4181f0dccc1ce7d192d8f1db370af8ec4a4e174a", caller("header:X-User", with("x-user", "\u00fc")));
        assertEquals("sha256\nc6d8e9905300876046729949cc95c2385221270d389176f7234fe7ac00c4e430", caller("header:X-User", with("x-user", "x".repeat(1025))));
    }
}

package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    private static final int ROUNDS = 20_000;

    @Test
    void readsWhatTheGrammarHas() {
        Map<String, Object> want = new LinkedHashMap<>();
        want.put("a", List.of(0L, -1L, Long.MAX_VALUE, 1.5, -2e3, 1e-7));
        want.put("", Arrays.asList(true, false, null));
        want.put("\"\\/\b\f\n\r\té😀", Map.of("nested", List.of(List.of(), Map.of())));
        String text = " {\"a\":[0,-1,9223372036854775807, 1.5 ,-2E+3,1e-7],\t\"\":[true,false,null],\r\n"
                + "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\ud83d\\ude00\":{\"nested\":[[],{ }]}} ";
        assertEquals(want, Json.read(text));
        assertEquals(want, Json.read(text.getBytes(StandardCharsets.UTF_8)));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", " ", "{", "}", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}",
        "{a:1}", "{'a':1}", "{\"a\" 1}", "{1:1}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "1 2", "[]]", "{}x",
        "tru", "True", "nul", "NaN", "Infinity", "-", "+1", "01", "-01", "1.", ".5", "1.e1", "1e", "1e+", "0x1", "1_000",
        "9223372036854775808", "1e999", "-1.5e400",
        "\"", "\"a", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\u１２３４\"", "\"a\nb\"",
        "\"\t\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800a\"", "\"\\ud800\\ud800\"", "/**/1", "1//", "\uFEFF1"
    })
    void refusesEverythingElse(String text) {
        assertThrows(Unreadable.class, () -> Json.read(text));
    }

    @Test
    void refusesBytesThatAreNotUtf8() {
        for (byte[] bytes : new byte[][] {
            {'"', (byte) 0xff, '"'}, {'"', (byte) 0xc0, (byte) 0xaf, '"'}, {'"', (byte) 0xed, (byte) 0xa0, (byte) 0x80, '"'},
            {'"', (byte) 0xe2, (byte) 0x82, '"'}
        }) {
            assertThrows(Unreadable.class, () -> Json.read(bytes));
        }
    }

    @Test
    void refusesWhatIsTooDeep() {
        assertEquals("[".repeat(64) + "]".repeat(64), Json.write(Json.read("[".repeat(64) + "]".repeat(64))));
        assertThrows(Unreadable.class, () -> Json.read("[".repeat(65) + "]".repeat(65)));
        assertThrows(Unreadable.class, () -> Json.read("{\"a\":".repeat(1_000_000)));
    }

    @Test
    void readsWhatItWrites() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        for (int i = 0; i < ROUNDS; i++) {
            Object value = value(random, 4);
            assertEquals(value, Json.read(Json.write(value).getBytes(StandardCharsets.UTF_8)), "seed " + seed);
        }
    }

    /** Changes bytes of answers: each is readable or unreadable, and readable ones are the same after a round trip. */
    @Test
    void brokenAnswersAreUnreadableAndNothingWorse() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        byte[] answer = ("{\"status\":429,\"demands\":[" + Scripted.DECISION + "],\"detail\":\"\\ud83d\\ude00 é\",\"x\":1.5e3}")
                .getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < ROUNDS; i++) {
            byte[] broken = broken(random, answer);
            Object value;
            try {
                value = Json.read(broken);
            } catch (Unreadable e) {
                continue;
            } catch (RuntimeException e) {
                fail("seed " + seed + ": " + new String(broken, StandardCharsets.UTF_8), e);
                return;
            }
            assertEquals(value, Json.read(Json.write(value)), "seed " + seed);
        }
    }

    /** Broken replies are answers or unreadable, too, but never errors of the client. */
    @Test
    void brokenRepliesAreUnreadableAndNothingWorse() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        byte[] one = Scripted.DECISION.getBytes(StandardCharsets.UTF_8);
        byte[] batch = ("{\"results\":[{\"status\":200," + Scripted.DECISION.substring(1) + "]}").getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < ROUNDS; i++) {
            readOrRefuse(seed, broken(random, one), Wire::readAnswer);
            readOrRefuse(seed, broken(random, batch), reply -> Wire.readResults(reply, 1));
        }
    }

    private static void readOrRefuse(long seed, byte[] body, Function<Outcome.Reply, ?> read) {
        try {
            read.apply(new Outcome.Reply(200, Duration.ZERO, false, body));
        } catch (Unreadable e) {
            // as expected
        } catch (RuntimeException e) {
            fail("seed " + seed + ": " + new String(body, StandardCharsets.UTF_8), e);
        }
    }

    private static byte[] broken(Random random, byte[] whole) {
        byte[] bytes = Arrays.copyOf(whole, random.nextInt(10) == 0 ? random.nextInt(whole.length) : whole.length);
        String likely = "{}[]\",:\\/utfn0-1.eE \n";
        for (int n = random.nextInt(3); n >= 0 && bytes.length > 0; n--) {
            int at = random.nextInt(bytes.length);
            bytes[at] = (byte) (random.nextBoolean() ? likely.charAt(random.nextInt(likely.length())) : random.nextInt(256));
        }
        return bytes;
    }

    private static Object value(Random random, int depth) {
        switch (random.nextInt(depth > 0 ? 7 : 5)) {
            case 0:
                return random.nextLong();
            case 1:
                return random.nextGaussian() * Math.pow(10, random.nextInt(40) - 20);
            case 2:
                return random.nextBoolean();
            case 3:
                return null;
            case 4:
                return text(random);
            case 5:
                List<Object> list = new ArrayList<>();
                for (int n = random.nextInt(4); n > 0; n--) {
                    list.add(value(random, depth - 1));
                }
                return list;
            default:
                Map<String, Object> map = new LinkedHashMap<>();
                for (int n = random.nextInt(4); n > 0; n--) {
                    map.put(text(random), value(random, depth - 1));
                }
                return map;
        }
    }

    private static String text(Random random) {
        StringBuilder s = new StringBuilder();
        for (int n = random.nextInt(8); n > 0; n--) {
            int c = random.nextInt(3) == 0 ? random.nextInt(0x110000) : random.nextInt(128);
            s.appendCodePoint(c >= 0xd800 && c < 0xe000 ? '"' : c);
        }
        return s.toString();
    }
}

package io.github.ratelimitd.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads and writes JSON (RFC 8259). Objects are maps, arrays lists, whole numbers {@link Long}, other numbers
 * {@link Double}, and the rest {@link String}, {@link Boolean} and null.
 *
 * <p>The reader is strict: a repeated name, a lone surrogate, bytes that are not UTF-8 and anything after the
 * value are {@link Unreadable}. It does not know the members.
 */
final class Json {
    /** Answers are four levels deep, and explanations a few more. */
    private static final int MAX_DEPTH = 64;

    private final String text;
    private int at;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /** Reads one value. */
    static Object read(byte[] utf8) {
        try {
            return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
        } catch (CharacterCodingException e) {
            throw unreadable();
        }
    }

    /** Reads one value. */
    static Object read(String text) {
        Json json = new Json(text);
        json.skipBlanks();
        Object value = json.value();
        json.skipBlanks();
        if (json.at < text.length()) {
            throw unreadable();
        }
        return value;
    }

    private static Unreadable unreadable() {
        return new Unreadable("its body cannot be read");
    }

    private Object value() {
        switch (peek()) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object() {
        enter();
        Map<String, Object> members = new LinkedHashMap<>();
        if (!skip('}')) {
            do {
                skipBlanks();
                String name = string();
                skipBlanks();
                expect(':');
                skipBlanks();
                Object value = value();
                if (members.containsKey(name)) {
                    throw unreadable();
                }
                members.put(name, value);
                skipBlanks();
            } while (skip(','));
            expect('}');
        }
        depth--;
        return members;
    }

    private List<Object> array() {
        enter();
        List<Object> values = new ArrayList<>();
        if (!skip(']')) {
            do {
                skipBlanks();
                values.add(value());
                skipBlanks();
            } while (skip(','));
            expect(']');
        }
        depth--;
        return values;
    }

    /** Skips an opening bracket and the blanks after it. */
    private void enter() {
        if (++depth > MAX_DEPTH) {
            throw unreadable();
        }
        at++;
        skipBlanks();
    }

    private String string() {
        expect('"');
        StringBuilder s = null;
        int from = at;
        for (; ; at++) {
            char c = peek();
            if (c == '"') {
                String last = text.substring(from, at++);
                return whole(s == null ? last : s.append(last).toString());
            }
            if (c < ' ') {
                throw unreadable();
            }
            if (c == '\\') {
                s = (s == null ? new StringBuilder() : s).append(text, from, at++).append(escaped());
                from = at + 1;
            }
        }
    }

    /** Reads an escape after its backslash, up to its last character. */
    private char escaped() {
        char c = peek();
        switch (c) {
            case '"', '\\', '/':
                return c;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                int code = 0;
                for (int i = 0; i < 4; i++) {
                    at++;
                    int digit = peek() < 128 ? Character.digit(peek(), 16) : -1;
                    if (digit < 0) {
                        throw unreadable();
                    }
                    code = 16 * code + digit;
                }
                return (char) code;
            default:
                throw unreadable();
        }
    }

    private static String whole(String s) {
        if (!isUnicode(s)) {
            throw unreadable();
        }
        return s;
    }

    private Object number() {
        int from = at;
        boolean whole = true;
        skip('-');
        if (!skip('0')) {
            digits();
        }
        if (skip('.')) {
            whole = false;
            digits();
        }
        if (skip('e') || skip('E')) {
            whole = false;
            if (!skip('+')) {
                skip('-');
            }
            digits();
        }
        String number = text.substring(from, at);
        if (!whole) {
            Double value = Double.valueOf(number);
            if (value.isInfinite()) { // it is larger than any double
                throw unreadable();
            }
            return value;
        }
        try {
            return Long.valueOf(number);
        } catch (NumberFormatException e) { // it is longer than any of ratelimitd's
            throw unreadable();
        }
    }

    private void digits() {
        int from = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        if (at == from) {
            throw unreadable();
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw unreadable();
        }
        at += word.length();
        return value;
    }

    private void skipBlanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean skip(char c) {
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private void expect(char c) {
        if (!skip(c)) {
            throw unreadable();
        }
    }

    private char peek() {
        if (at >= text.length()) {
            throw unreadable();
        }
        return text.charAt(at);
    }

    /** Returns whether s can be written as UTF-8: it has no lone surrogate. */
    static boolean isUnicode(String s) {
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (!Character.isSurrogate(c)) {
                continue;
            }
            if (!Character.isHighSurrogate(c) || ++i == s.length() || !Character.isLowSurrogate(s.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    /** Writes a value of maps, lists, texts, numbers, booleans and null. */
    static String write(Object value) {
        StringBuilder b = new StringBuilder();
        append(b, value);
        return b.toString();
    }

    private static void append(StringBuilder b, Object value) {
        if (value instanceof Map<?, ?> members) {
            b.append('{');
            String separator = "";
            for (Map.Entry<?, ?> member : members.entrySet()) {
                appendText(b.append(separator), (String) member.getKey());
                append(b.append(':'), member.getValue());
                separator = ",";
            }
            b.append('}');
        } else if (value instanceof List<?> values) {
            b.append('[');
            String separator = "";
            for (Object element : values) {
                append(b.append(separator), element);
                separator = ",";
            }
            b.append(']');
        } else if (value instanceof String s) {
            appendText(b, s);
        } else {
            b.append(value);
        }
    }

    private static void appendText(StringBuilder b, String s) {
        b.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else if (c < ' ') {
                b.append("\\u00").append(Character.forDigit(c >> 4, 16)).append(Character.forDigit(c & 15, 16));
            } else {
                b.append(c);
            }
        }
        b.append('"');
    }
}

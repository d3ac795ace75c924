package io.github.ratelimitd.spring;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Names the counted callers, like the other entrances of ratelimitd. */
final class Callers {
    /** Before the address of a caller without another name. */
    private static final String UNIDENTIFIED = "ip\n";
    /** Before a name that looks like an address, so that no caller can use up an address's limit with it. */
    private static final String NAMED = "name\n";

    private static final String HASHED = "sha256\n";
    private static final int MAX_BYTES = 1024;
    private static final Pattern BEARER = Pattern.compile("bearer[ \\t]+(.+)", Pattern.CASE_INSENSITIVE);
    private static final Pattern HEADER = Pattern.compile("header:([!#$%&'*+.^_`|~\\w-]+)"); // RFC 9110, section 5.6.2

    private final Addresses addresses;
    private final Function<String, CallerResolver> beans;

    /**
     * Makes an object that names callers.
     *
     * @param beans finds a resolver by its name, or throws an exception
     */
    Callers(Addresses addresses, Function<String, CallerResolver> beans) {
        this.addresses = addresses;
        this.beans = beans;
    }

    /** A way to name a caller. */
    @FunctionalInterface
    interface By {
        /** Returns the name, or null if a trusted proxy hides the caller. */
        String callerOf(LimitedRequest request);
    }

    /**
     * Reads the text of {@code by}.
     *
     * @throws IllegalArgumentException if it is not a way to name a caller
     */
    By by(String text) {
        if (text.equals("ip")) {
            return this::address;
        }
        if (text.equals("principal")) {
            return named(request -> request.principal().orElse(null));
        }
        if (text.equals("api-key")) {
            return named(Callers::apiKeyOf);
        }
        Matcher header = HEADER.matcher(text);
        if (header.matches()) {
            String name = header.group(1);
            return named(request -> only(request.headers(name)));
        }
        if (text.startsWith("bean:")) {
            CallerResolver resolver = beans.apply(text.substring("bean:".length()));
            return request -> orAddress(resolver.callerOf(request), request);
        }
        throw new IllegalArgumentException("ratelimitd: by is " + text
                + ": it must be ip, principal, api-key, header:NAME or bean:NAME");
    }

    private By named(Function<LimitedRequest, String> nameOf) {
        return request -> {
            String name = nameOf.apply(request);
            boolean couldPass = name != null && Addresses.isAddress(name.strip());
            return orAddress(couldPass ? NAMED + name : name, request);
        };
    }

    private String orAddress(String name, LimitedRequest request) {
        if (name != null && !name.isEmpty()) {
            return bounded(name);
        }
        String address = address(request);
        return address == null ? null : UNIDENTIFIED + address;
    }

    private String address(LimitedRequest request) {
        return addresses.callerOf(request.address().orElse("unknown"), request.headers("X-Forwarded-For"));
    }

    private static String apiKeyOf(LimitedRequest request) {
        List<String> authorizations = request.headers("Authorization");
        List<String> keys = request.headers("X-API-Key");
        String authorization = only(authorizations);
        Matcher bearer = BEARER.matcher(authorization == null ? "" : authorization);
        String token = bearer.matches() ? bearer.group(1).strip() : null;
        if (keys.isEmpty()) {
            return token;
        }
        return token != null || authorizations.size() > 1 ? null : only(keys);
    }

    /** With several values, it is unknown which one later services use. */
    private static String only(List<String> values) {
        return values.size() == 1 ? utf8(values.get(0)) : null;
    }

    /**
     * Returns a header's value as UTF-8. Servers read its bytes as Latin-1. So a name is the same identifier as for
     * programs in other languages.
     */
    private static String utf8(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.ISO_8859_1);
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            return hashed(bytes);
        }
    }

    /** Returns an identifier, or a hash of one that ratelimitd would not take. */
    private static String bounded(String identifier) {
        byte[] bytes = identifier.getBytes(StandardCharsets.UTF_8);
        return bytes.length <= MAX_BYTES ? identifier : hashed(bytes);
    }

    private static String hashed(byte[] bytes) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            return HASHED + HexFormat.of().formatHex(digest);
        } catch (NoSuchAlgorithmException e) { // each JDK has it
            throw new IllegalStateException(e);
        }
    }
}

package io.github.ratelimitd.client;

import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;

/** The members of an object, by type. A member that is missing or of another type is {@link Unreadable}. */
record Members(Map<?, ?> values) {
    static Members of(Object value) {
        if (value instanceof Map<?, ?> values) {
            return new Members(values);
        }
        throw new Unreadable("it has something else than an object");
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    /** Returns whether the member exists, and is not null. */
    boolean hasValue(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        if (values.get(name) instanceof String s) {
            return s;
        }
        throw new Unreadable(name + " is not a string");
    }

    Optional<String> optionalText(String name) {
        return has(name) ? Optional.of(text(name)) : Optional.empty();
    }

    boolean flag(String name) {
        if (values.get(name) instanceof Boolean b) {
            return b;
        }
        throw new Unreadable(name + " is neither true nor false");
    }

    /** Returns a flag, or false if it is missing. */
    boolean optionalFlag(String name) {
        return has(name) && flag(name);
    }

    long integer(String name) {
        if (values.get(name) instanceof Long n && n >= 0) {
            return n;
        }
        throw new Unreadable(name + " is not a whole number");
    }

    OptionalLong optionalInteger(String name) {
        return has(name) ? OptionalLong.of(integer(name)) : OptionalLong.empty();
    }

    int status() {
        long status = integer("status");
        if (status > 599) {
            throw new Unreadable("status is none of HTTP");
        }
        return (int) status;
    }

    Duration milliseconds(String name) {
        return Duration.ofMillis(integer(name));
    }

    /** Returns how long to wait; empty: no wait helps. */
    Optional<Duration> wait(String name) {
        return has(name) && !hasValue(name) ? Optional.empty() : Optional.of(milliseconds(name));
    }

    Instant time(String name) {
        try {
            return OffsetDateTime.parse(text(name)).toInstant();
        } catch (DateTimeException e) {
            throw new Unreadable(name + " is not a time");
        }
    }

    <T> List<T> list(String name, Function<Object, T> read) {
        if (!(values.get(name) instanceof List<?> list)) {
            throw new Unreadable(name + " is not a list");
        }
        return list.stream().map(v -> read.apply(v)).toList();
    }

    /** Returns a list, which is empty if it is missing. */
    <T> List<T> optionalList(String name, Function<Object, T> read) {
        return has(name) ? list(name, read) : List.of();
    }

    /** Returns the value of E that a text names, or otherwise if this version does not know it. */
    <E extends Enum<E>> E named(String name, Class<E> type, E otherwise) {
        String text = text(name).toUpperCase(Locale.ROOT);
        for (E value : type.getEnumConstants()) {
            if (value.name().equals(text)) {
                return value;
            }
        }
        return otherwise;
    }

    <E extends Enum<E>> Optional<E> optionalNamed(String name, Class<E> type, E otherwise) {
        return has(name) ? Optional.of(named(name, type, otherwise)) : Optional.empty();
    }
}

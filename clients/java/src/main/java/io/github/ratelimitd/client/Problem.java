package io.github.ratelimitd.client;

import java.util.Optional;

/**
 * An answer without a decision, a problem of RFC 9457. It never repeats an identifier.
 *
 * @param type a URI, or {@code about:blank}
 * @param title the status in words
 * @param status the status of HTTP; 0 if the client itself refuses the call
 * @param detail the mistake, in a sentence
 * @param field the wrong member, such as {@code cost} or {@code demands[1].policy}; empty: none
 * @param recorded whether the units count; empty: the service does not say
 */
public record Problem(
        String type,
        String title,
        int status,
        String detail,
        Optional<String> field,
        Optional<Recorded> recorded) {}

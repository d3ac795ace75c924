package io.github.ratelimitd.client;

import java.util.Optional;

/**
 * An answer that is not a decision, as RFC 9457 has it. It never repeats an identifier.
 *
 * @param type a URI, or {@code about:blank}
 * @param title the status in words
 * @param status the status of HTTP; 0 where the client refuses the call itself
 * @param detail the mistake, in a sentence
 * @param field the member that is wrong, such as {@code cost} or {@code demands[1].policy}; empty: none is
 * @param recorded whether the units count; empty: the service does not say
 */
public record Problem(
        String type,
        String title,
        int status,
        String detail,
        Optional<String> field,
        Optional<Recorded> recorded) {}

package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Optional;

/** A wait would not end in time: there is no room before, or never, or too many calls already wait. */
public final class NoRoomException extends CallException {
    private static final long serialVersionUID = 1;

    /** The last denial; null: none. */
    private final transient Decision decision;

    NoRoomException(String message, Optional<Decision> decision) {
        super("take", Recorded.NO, new Failure(Failure.Kind.FULL, message, false, null, Duration.ZERO, null));
        this.decision = decision.orElse(null);
    }

    /**
     * Returns the last denial.
     *
     * @return empty if there was none, or this exception was serialized
     */
    public Optional<Decision> decision() {
        return Optional.ofNullable(decision);
    }
}

package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Optional;

/** A wait would not end in time: what it waits for is not free before, or never, or too many wait already. */
public final class NoRoomException extends CallException {
    private static final long serialVersionUID = 1;

    /** Null: there was none. */
    private final transient Decision decision;

    NoRoomException(String message, Optional<Decision> decision) {
        super("take", Recorded.NO, new Failure(Failure.Kind.FULL, message, false, null, Duration.ZERO, null));
        this.decision = decision.orElse(null);
    }

    /**
     * Returns the last denial.
     *
     * @return empty if nothing was asked, or this exception was serialized
     */
    public Optional<Decision> decision() {
        return Optional.ofNullable(decision);
    }
}

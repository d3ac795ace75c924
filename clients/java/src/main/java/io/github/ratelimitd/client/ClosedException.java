package io.github.ratelimitd.client;

/** The client is closed. */
public final class ClosedException extends CallException {
    private static final long serialVersionUID = 1;

    ClosedException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

package io.github.ratelimitd.client;

/** The service does not decide: it can't be reached, is late or broken, or its store is down. */
public final class UnavailableException extends CallException {
    private static final long serialVersionUID = 1;

    UnavailableException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

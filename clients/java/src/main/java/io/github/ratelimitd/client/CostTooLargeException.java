package io.github.ratelimitd.client;

/** The cost is more than a limit can ever hold. */
public final class CostTooLargeException extends InvalidCallException {
    private static final long serialVersionUID = 1;

    CostTooLargeException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

package io.github.ratelimitd.client;

/**
 * The calling thread was interrupted while it waited.
 * Its interrupt status is set again. The call may count all the same: {@link #recorded} says.
 */
public final class InterruptedCallException extends CallException {
    private static final long serialVersionUID = 1;

    InterruptedCallException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

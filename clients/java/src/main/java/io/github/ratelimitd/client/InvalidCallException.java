package io.github.ratelimitd.client;

/** The call is wrong and can't be decided. */
public class InvalidCallException extends CallException {
    private static final long serialVersionUID = 1;

    InvalidCallException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

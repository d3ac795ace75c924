package io.github.ratelimitd.client;

/** No policy of that name is in force. */
public final class UnknownPolicyException extends InvalidCallException {
    private static final long serialVersionUID = 1;

    UnknownPolicyException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

package io.github.ratelimitd.client;

/** The idempotency key was given to another request. */
public final class KeyReusedException extends InvalidCallException {
    private static final long serialVersionUID = 1;

    KeyReusedException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

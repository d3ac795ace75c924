package io.github.ratelimitd.client;

/** There is nothing to refund or to confirm, or no longer. */
public final class NoReceiptException extends CallException {
    private static final long serialVersionUID = 1;

    NoReceiptException(String op, Recorded recorded, Failure failure) {
        super(op, recorded, failure);
    }
}

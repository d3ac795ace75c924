package io.github.ratelimitd.client;

import java.util.Locale;
import java.util.Optional;

/**
 * The error of a call without a decision, and whether its units count. A denial is not an error. No message contains
 * an identifier.
 */
public class CallException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final String KEY_REUSED = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused";

    /** The operation that failed. */
    private final String op;
    /** Null: the units are unknown. */
    private final Recorded recorded;
    /** Null: the service gave no reason. */
    private final transient Problem problem;

    CallException(String op, Recorded recorded, Failure failure) {
        super(
                "ratelimitd: " + op + ": " + failure.message()
                        + (recorded == Recorded.UNKNOWN ? " (whether it counts is unknown)" : ""),
                failure.cause());
        this.op = op;
        this.recorded = recorded;
        this.problem = failure.problem();
    }

    /**
     * Returns the operation that failed.
     *
     * @return {@code check}, {@code record}, {@code take}, {@code batch}, {@code refund}, {@code confirm}, {@code reset}
     *     or {@code explain}
     */
    public String op() {
        return op;
    }

    /**
     * Returns whether the units count all the same. For a refund or a confirm, it is whether they still count; for a
     * reset, whether it took effect.
     *
     * @return empty if the units are unknown, as for an unknown receipt
     */
    public Optional<Recorded> recorded() {
        return Optional.ofNullable(recorded);
    }

    /**
     * Returns the reason that the service, or the client itself, gave.
     *
     * @return empty if there was no answer, or this exception was serialized
     */
    public Optional<Problem> problem() {
        return Optional.ofNullable(problem);
    }

    /** Returns the exception for a failed call. */
    static CallException of(String op, Recorded recorded, Failure failure) {
        return switch (failure.kind()) {
            case ENDED -> new InterruptedCallException(op, recorded, failure);
            case CLOSED -> new ClosedException(op, recorded, failure);
            case PROBLEM -> ofProblem(op, recorded, failure);
            default -> new UnavailableException(op, recorded, failure);
        };
    }

    private static CallException ofProblem(String op, Recorded recorded, Failure failure) {
        Problem problem = failure.problem();
        String field = problem.field().orElse("");
        if (problem.status() >= 500) {
            return new UnavailableException(op, recorded, failure);
        }
        if (problem.status() == 404 && field.equals("receipt")) {
            return new NoReceiptException(op, recorded, failure);
        }
        if (problem.status() == 404 && field.endsWith("policy")) {
            return new UnknownPolicyException(op, recorded, failure);
        }
        if (problem.status() == 422 && problem.type().equals(KEY_REUSED)) {
            return new KeyReusedException(op, recorded, failure);
        }
        if (problem.status() == 422 && field.endsWith("cost")) {
            return new CostTooLargeException(op, recorded, failure);
        }
        return new InvalidCallException(op, recorded, failure);
    }

    /** Returns the exception for a call that the client itself refuses. */
    static InvalidCallException refused(String op, String field, String detail) {
        Recorded recorded = recordedBefore(op);
        return new InvalidCallException(op, recorded, Failure.refused(field, detail));
    }

    /** Returns whether units count after an operation that certainly had no effect: those of a refund do. */
    static Recorded recordedBefore(String op) {
        return op.equals("refund") || op.equals("confirm") ? Recorded.YES : Recorded.NO;
    }

    static String nameOf(Op op) {
        return op.name().toLowerCase(Locale.ROOT);
    }
}

package io.github.ratelimitd.client;

/** The result of an attempt of a call. */
sealed interface Answer permits Answer.Decided, Answer.Confirmed, Answer.Explained, Answer.Done, Failure {
    /** The service decided. */
    record Decided(Decision decision) implements Answer {}

    /** A receipt is confirmed. */
    record Confirmed() implements Answer {}

    /** The service explained. */
    record Explained(Explanation explanation) implements Answer {}

    /** A refund or a reset took effect. */
    record Done() implements Answer {}
}

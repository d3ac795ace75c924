package io.github.ratelimitd.client;

/** What a try of a call gave. */
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

package io.github.ratelimitd.client;

/** Whether the units of a call count. */
public enum Recorded {
    /** They count. */
    YES,
    /** They do not count. */
    NO,
    /** They may count: the answer was lost, or the store did not answer. */
    UNKNOWN
}

package io.github.ratelimitd.client;

/** What a {@link Call} does. */
public enum Op {
    /** Asks whether demands would be allowed now. It records nothing, and may hold units. */
    CHECK,
    /** Records demands, whatever the limits. */
    RECORD,
    /** Checks and records demands as one step. */
    TAKE,
    /** Says that what a receipt was given for turned out to be real. */
    CONFIRM
}

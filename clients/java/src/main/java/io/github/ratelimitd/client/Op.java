package io.github.ratelimitd.client;

/** The operation of a {@link Call}. */
public enum Op {
    /** Asks whether demands would be allowed now. It records nothing, and may hold units. */
    CHECK,
    /** Records demands, whatever the limits. */
    RECORD,
    /** Checks and records demands as one step. */
    TAKE,
    /** Confirms that the units of a receipt were real. */
    CONFIRM
}

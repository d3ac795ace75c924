package io.github.ratelimitd.client;

/** How a policy is applied. */
public enum Mode {
    /** It denies calls over its limits. */
    ENFORCE,
    /** It decides and reports, and always allows. */
    SHADOW,
    /** It allows everything and counts nothing. */
    OFF,
    /** A mode that this version of the client does not know. */
    UNKNOWN
}

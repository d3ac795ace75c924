package io.github.ratelimitd.client;

/** What an administrator has decided otherwise for an identifier, for a while. */
public enum OverrideKind {
    /** Everything is allowed, and nothing is counted. */
    ALLOW,
    /** Everything is denied, without a look at the counts. */
    BLOCK,
    /** Other limits are in force. */
    LIMITS,
    /** A kind that this version of the client does not know. */
    UNKNOWN
}

package io.github.ratelimitd.client;

/** The kind of an administrator's override for an identifier. */
public enum OverrideKind {
    /** Everything is allowed, and nothing is counted. */
    ALLOW,
    /** Everything is denied, whatever the counts. */
    BLOCK,
    /** Other limits are in force. */
    LIMITS,
    /** A kind that this version of the client does not know. */
    UNKNOWN
}

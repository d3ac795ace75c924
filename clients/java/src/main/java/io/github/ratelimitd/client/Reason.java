package io.github.ratelimitd.client;

/** A rule of a policy about phone numbers, which denies whatever the counts. */
public enum Reason {
    /** The policy admits no numbers of the number's country. */
    COUNTRY,
    /** The policy admits no numbers of its type, such as premium rate. */
    NUMBER_TYPE,
    /** A rule that this version of the client does not know. */
    UNKNOWN
}

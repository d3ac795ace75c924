package io.github.ratelimitd.client;

/** Says why a body is not ratelimitd's. It repeats nothing of the body. */
final class Unreadable extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unreadable(String why) {
        super(why, null, false, false);
    }
}

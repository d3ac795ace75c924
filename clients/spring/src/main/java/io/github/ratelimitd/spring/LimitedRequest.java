package io.github.ratelimitd.spring;

import java.util.List;
import java.util.Optional;

/** The parts of a request that limits use. */
public interface LimitedRequest {
    /**
     * Returns the method.
     *
     * @return such as {@code GET}
     */
    String method();

    /**
     * Returns the path within the application, as it was sent.
     *
     * @return begins with a slash
     */
    String path();

    /**
     * Returns the values of a header.
     *
     * @param name in any case
     * @return in their order; empty: the request does not have it
     */
    List<String> headers(String name);

    /**
     * Returns the name of the caller that the application authenticated.
     *
     * @return empty: no user is logged in
     */
    Optional<String> principal();

    /**
     * Returns the address of the connection.
     *
     * @return {@code unix} for a unix socket of Tomcat; empty: unknown
     */
    Optional<String> address();
}

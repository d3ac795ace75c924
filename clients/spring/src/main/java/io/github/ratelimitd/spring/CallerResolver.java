package io.github.ratelimitd.spring;

/** Names the caller of a request. {@code bean:NAME} uses a bean of this type. It must not block. */
@FunctionalInterface
public interface CallerResolver {
    /**
     * Returns the caller.
     *
     * @param request the request
     * @return such as a tenant; null or empty: the request is counted by its address
     */
    String callerOf(LimitedRequest request);
}

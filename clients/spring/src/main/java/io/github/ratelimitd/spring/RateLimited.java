package io.github.ratelimitd.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the requests that a handler of Spring MVC or WebFlux gets. On a class, it is for all handlers that have none of
 * their own. Several on one handler stand or fall together: one call takes them all, or none.
 *
 * <p>The verdict falls before the request's body is read. A denied request is answered 429 with a problem of RFC 9457.
 */
@Documented
@Inherited
@Repeatable(RateLimited.Several.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.METHOD, ElementType.TYPE})
public @interface RateLimited {
    /**
     * Returns the name of the policy.
     *
     * @return a policy of ratelimitd, such as {@code login}
     */
    String value();

    /**
     * Returns the caller that is counted.
     *
     * @return {@code ip}, {@code principal}, {@code header:NAME}, {@code api-key}, or {@code bean:NAME} of a {@link
     *     CallerResolver}. Empty: as {@code ratelimitd.by} says.
     */
    String by() default "";

    /**
     * Returns what a request costs.
     *
     * @return units, 1 or more
     */
    long cost() default 1;

    /**
     * Returns what brings the limit, under a policy that takes its limit from requests.
     *
     * @return {@code bean:NAME} of a {@link LimitResolver}. Empty: the policy's default holds.
     */
    String limit() default "";

    /** Several on one handler or class. */
    @Documented
    @Inherited
    @Retention(RetentionPolicy.RUNTIME)
    @Target({ElementType.METHOD, ElementType.TYPE})
    @interface Several {
        /**
         * Returns all of them.
         *
         * @return two or more
         */
        RateLimited[] value();
    }
}

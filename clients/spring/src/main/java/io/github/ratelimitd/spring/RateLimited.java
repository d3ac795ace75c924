package io.github.ratelimitd.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the requests to a handler of Spring MVC or WebFlux. On a class, it applies to all handlers without one of
 * their own. One call takes all annotations of a handler, or none.
 *
 * <p>The request is decided before its body is read. A denied request gets a 429 with a problem of RFC 9457.
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
     *     CallerResolver}. Empty: {@code ratelimitd.by}.
     */
    String by() default "";

    /**
     * Returns the cost of a request.
     *
     * @return units, 1 or more
     */
    long cost() default 1;

    /**
     * Returns the source of the limit, under a policy that takes its limit from requests.
     *
     * @return {@code bean:NAME} of a {@link LimitResolver}. Empty: the policy's default.
     */
    String limit() default "";

    /** Several annotations on one handler or class. */
    @Documented
    @Inherited
    @Retention(RetentionPolicy.RUNTIME)
    @Target({ElementType.METHOD, ElementType.TYPE})
    @interface Several {
        /**
         * Returns all annotations.
         *
         * @return two or more
         */
        RateLimited[] value();
    }
}

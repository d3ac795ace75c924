package io.github.ratelimitd.client;

import java.net.URI;
import java.net.URISyntaxException;
import java.net.http.HttpRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import javax.net.ssl.SSLContext;

/**
 * The options of a {@link RatelimitdClient}. Every option has a default; an invalid value is refused at once by an
 * {@link IllegalArgumentException} that names it. A builder is for one thread.
 */
public final class RatelimitdClientBuilder {
    private static final Duration MAX_TIME = Duration.ofDays(1);
    private static final int MAX_RETRIES = 100;

    final List<URI> baseUrls;
    final Map<String, String> headers = new LinkedHashMap<>();
    SSLContext sslContext;
    Duration timeout = Duration.ofSeconds(2);
    int retries;
    OnUnavailable onUnavailable = OnUnavailable.FAIL_CLOSED;
    BiConsumer<Call, CallException> onFailedOpen = (call, error) -> {};
    int concurrency = 2;
    boolean batching = true;
    int maxFailures = 5;
    Duration probeInterval = Duration.ofSeconds(1);
    System.Logger logger = System.getLogger("io.github.ratelimitd.client");

    RatelimitdClientBuilder(List<String> baseUrls) {
        if (baseUrls.isEmpty()) {
            throw wrong("baseUrls", "empty", "one address at least");
        }
        List<URI> checked = new ArrayList<>();
        for (int i = 0; i < baseUrls.size(); i++) {
            checked.add(checkedUrl("baseUrls[" + i + "]", baseUrls.get(i)));
        }
        this.baseUrls = List.copyOf(checked);
    }

    /** Returns the URL with a slash at its end. No error repeats it, because it may contain a password. */
    private static URI checkedUrl(String field, String text) {
        Objects.requireNonNull(text, field);
        URI url;
        try {
            url = new URI(text);
        } catch (URISyntaxException e) {
            throw wrong(field, "no URL", "such as http://127.0.0.1:8080");
        }
        String scheme = url.getScheme() == null ? "" : url.getScheme().toLowerCase(Locale.ROOT);
        if (!(scheme.equals("http") || scheme.equals("https")) || url.getHost() == null) {
            throw wrong(field, "not of HTTP", "http:// or https:// with a host");
        }
        if (url.getUserInfo() != null || url.getQuery() != null || url.getFragment() != null) {
            throw wrong(field, "more than an address", "without user, query and fragment; token is for credentials");
        }
        if (url.getPort() > 65535 || url.getPort() == 0) {
            throw wrong(field, "of port " + url.getPort(), "of a port from 1 to 65535");
        }
        return URI.create(text.endsWith("/") ? text : text + "/");
    }

    /**
     * Sets the bearer token of every request.
     *
     * @param token printable ASCII without blanks. Default: none.
     * @return this builder
     */
    public RatelimitdClientBuilder token(String token) {
        Objects.requireNonNull(token, "token");
        if (!token.matches("[!-~]+")) {
            throw wrong("token", "not a bearer token", "printable ASCII without blanks");
        }
        headers.put("Authorization", "Bearer " + token);
        return this;
    }

    /**
     * Sets a header of every request, for proxies in front of the service.
     *
     * @param name its name. The client's own headers, such as {@code Content-Type}, can't be changed.
     * @param value its value
     * @return this builder
     * @throws IllegalArgumentException if the JDK's client does not send such a header, such as {@code Host}
     */
    public RatelimitdClientBuilder header(String name, String value) {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(value, "value");
        try {
            HttpRequest.newBuilder().header(name, value);
        } catch (IllegalArgumentException e) { // its message may have the value
            throw wrong("header", "not one that can be sent", "a header's name and value that the JDK's HTTP client sends");
        }
        headers.put(name, value);
        return this;
    }

    /**
     * Sets the options of TLS: the authorities that verify servers, and this client's certificate.
     *
     * @param context Default: the JDK's, which has no certificate.
     * @return this builder
     */
    public RatelimitdClientBuilder sslContext(SSLContext context) {
        this.sslContext = Objects.requireNonNull(context, "sslContext");
        return this;
    }

    /**
     * Sets the time of a call, with all its attempts.
     *
     * @param timeout from a millisecond to a day. Default: 2 seconds, well over the service's own store timeout of 500
     *     ms, so that its answer about a slow store arrives.
     * @return this builder
     */
    public RatelimitdClientBuilder timeout(Duration timeout) {
        this.timeout = checkedTime("timeout", timeout);
        return this;
    }

    /**
     * Sets how often a call without an answer is repeated if it can't count twice: it certainly had no effect,
     * or is idempotent. Waits between attempts begin at 50 ms and double up to a second, or are as long as a 503 says. If
     * it is not 0, the client gives takes and records an idempotency key, because one without an answer may have counted;
     * the service keeps these keys, at some cost.
     *
     * @param retries from 0 to 100. Default: 0.
     * @return this builder
     */
    public RatelimitdClientBuilder retries(int retries) {
        this.retries = checked("retries", retries, 0, MAX_RETRIES);
        return this;
    }

    /**
     * Sets the result of calls while no ratelimitd answers.
     *
     * @param choice Default: {@link OnUnavailable#FAIL_CLOSED}.
     * @return this builder
     */
    public RatelimitdClientBuilder onUnavailable(OnUnavailable choice) {
        this.onUnavailable = Objects.requireNonNull(choice, "onUnavailable");
        return this;
    }

    /**
     * Sets a hook that gets every call that {@link OnUnavailable#FAIL_OPEN} allowed, with its policies and identifiers, and
     * the exception that it would have had. It runs before the call returns, and must not block. An exception of its
     * own is logged.
     *
     * @param hook Default: none. Such calls are counted and logged all the same.
     * @return this builder
     */
    public RatelimitdClientBuilder onFailedOpen(BiConsumer<Call, CallException> hook) {
        this.onFailedOpen = Objects.requireNonNull(hook, "onFailedOpen");
        return this;
    }

    /**
     * Sets how many requests are under way before further calls wait and share one. More are sent only while earlier
     * ones are late.
     *
     * @param requests from 1 to 256. Default: 2, which keeps the service busy while answers travel.
     * @return this builder
     */
    public RatelimitdClientBuilder concurrency(int requests) {
        this.concurrency = checked("concurrency", requests, 1, RatelimitdClient.MAX_UNBATCHED);
        return this;
    }

    /**
     * Sends every call as a request of its own, up to 256 at a time. By default calls share requests.
     *
     * @return this builder
     */
    public RatelimitdClientBuilder disableBatching() {
        this.batching = false;
        return this;
    }

    /**
     * Sets the number of failures in a row after which calls fail at once, until a probe succeeds.
     *
     * @param failures 1 or more. Default: 5; fewer may be one instance's restart.
     * @return this builder
     */
    public RatelimitdClientBuilder maxFailures(int failures) {
        this.maxFailures = checked("maxFailures", failures, 1, Integer.MAX_VALUE);
        return this;
    }

    /**
     * Sets the time between these failures and a probe, and between probes.
     *
     * @param interval from a millisecond to a day. Default: a second.
     * @return this builder
     */
    public RatelimitdClientBuilder probeInterval(Duration interval) {
        this.probeInterval = checkedTime("probeInterval", interval);
        return this;
    }

    /**
     * Sets the logger, which gets a line when the service goes and comes back, and one a second while calls fail open.
     *
     * @param logger Default: the one named {@code io.github.ratelimitd.client}.
     * @return this builder
     */
    public RatelimitdClientBuilder logger(System.Logger logger) {
        this.logger = Objects.requireNonNull(logger, "logger");
        return this;
    }

    /**
     * Makes the client. It sends nothing yet.
     *
     * @return a client; close it after use
     */
    public RatelimitdClient build() {
        return new RatelimitdClient(this);
    }

    private static int checked(String field, int value, int least, int most) {
        if (value < least || value > most) {
            String range = most == Integer.MAX_VALUE ? least + " or more" : "from " + least + " to " + most;
            throw wrong(field, Integer.toString(value), range);
        }
        return value;
    }

    private static Duration checkedTime(String field, Duration value) {
        Objects.requireNonNull(value, field);
        if (value.compareTo(Duration.ofMillis(1)) < 0 || value.compareTo(MAX_TIME) > 0) {
            throw wrong(field, value.toString(), "from a millisecond to a day");
        }
        return value;
    }

    private static IllegalArgumentException wrong(String field, String is, String wanted) {
        return new IllegalArgumentException("ratelimitd: " + field + " is " + is + ": it must be " + wanted);
    }
}

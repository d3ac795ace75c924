package io.github.ratelimitd.client;

import java.io.ByteArrayOutputStream;
import java.net.ConnectException;
import java.net.UnknownHostException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;

/**
 * Sends requests over HTTP, and reads replies within bounds. It does not know calls.
 *
 * <p>With several addresses, requests go to the one that answered last. If no connection is made, the same request goes
 * to the next address. After another failure, or a status of 500 and above, later requests do.
 */
final class Transport {
    private static final String JSON = "application/json";
    private static final String PROBLEM = "application/problem+json";
    private static final String LINES = "application/x-ndjson";
    /** More than the answer to a batch of 1000 calls of 16 demands. */
    private static final int MAX_BODY = 64 << 20;
    /** More than the answer to a call of 16 demands. */
    private static final int MAX_LINE = 1 << 20;
    /** A service within a network answers in milliseconds, but the first handshake of a JVM takes a while. */
    private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(2);
    /** Longer than any call waits. */
    private static final long MAX_RETRY_AFTER_S = 3600;

    private final List<URI> bases;
    private final Map<String, String> headers;
    /** The client; null once closed. */
    private volatile HttpClient http;
    /** The index of the address for the next request. */
    private final AtomicInteger preferred = new AtomicInteger();

    /**
     * Makes a transport.
     *
     * @param bases end with a slash
     * @param timeout of a call, in which each address can be tried
     * @param tls null: the JDK's default
     */
    Transport(List<URI> bases, Map<String, String> headers, Duration timeout, SSLContext tls, Executor executor) {
        this.bases = bases;
        this.headers = headers;
        Duration each = timeout.multipliedBy(3).dividedBy(4L * bases.size()); // a connection is given up before the call
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1) // cancelling a request then ends only its connection
                .followRedirects(HttpClient.Redirect.NEVER) // identifiers must reach only the named server
                .connectTimeout(each.compareTo(CONNECT_TIMEOUT) < 0 ? each : CONNECT_TIMEOUT)
                .executor(executor);
        if (tls != null) {
            builder.sslContext(tls);
        }
        http = builder.build();
    }

    /**
     * A POST of JSON.
     *
     * @param route below /v1/
     * @param idempotencyKey null: none
     * @param trace null: none
     * @param onLine gets the lines of an answer, each as soon as it arrives; null: an answer in lines is not requested
     */
    record Request(String route, byte[] body, String idempotencyKey, TraceContext trace, Consumer<byte[]> onLine) {}

    /** A request that is under way. */
    final class Exchange {
        final CompletableFuture<Outcome> outcome = new CompletableFuture<>();

        private final Request request;
        private volatile CompletableFuture<HttpResponse<byte[]>> underWay;
        private volatile boolean cancelled;
        private volatile int at;

        private Exchange(Request request) {
            this.request = request;
        }

        /** Ends the request without an answer. late says whether the address is to blame. */
        void cancel(boolean late) {
            cancelled = true;
            if (late) {
                avoid(at);
            }
            underWay.cancel(true);
        }

        private void ask(int address, int triesLeft) {
            at = address;
            underWay = http.sendAsync(requestTo(address), this::body);
            underWay.whenComplete((response, error) -> {
                if (error == null) {
                    answered(address, response);
                } else {
                    failed(address, triesLeft, error);
                }
            });
            if (cancelled) {
                underWay.cancel(true);
            }
        }

        private void answered(int address, HttpResponse<byte[]> response) {
            if (response.statusCode() >= 500) {
                avoid(address);
            }
            Duration retryAfter = retryAfter(response.headers());
            boolean replayed = response.headers().firstValue("Idempotent-Replayed").orElse("").equals("true");
            outcome.complete(new Outcome.Reply(response.statusCode(), retryAfter, replayed, response.body()));
        }

        private void failed(int address, int triesLeft, Throwable error) {
            Failure failure = failureOf(error, bases.get(address));
            if (!cancelled) {
                avoid(address);
                if (!failure.sent() && triesLeft > 0) {
                    ask((address + 1) % bases.size(), triesLeft - 1);
                    return;
                }
            }
            outcome.complete(failure);
        }

        private HttpRequest requestTo(int address) {
            HttpRequest.Builder b = HttpRequest.newBuilder(bases.get(address).resolve("v1/" + request.route));
            headers.forEach(b::setHeader);
            b.setHeader("Content-Type", JSON);
            b.setHeader("Accept", (request.onLine == null ? "" : LINES + ", ") + JSON + ", " + PROBLEM);
            if (request.idempotencyKey != null) {
                b.setHeader("Idempotency-Key", request.idempotencyKey);
            }
            if (request.trace != null) {
                b.setHeader("traceparent", request.trace.traceparent());
                if (!request.trace.tracestate().isEmpty()) {
                    b.setHeader("tracestate", request.trace.tracestate());
                }
            }
            return b.POST(HttpRequest.BodyPublishers.ofByteArray(request.body)).build();
        }

        private HttpResponse.BodySubscriber<byte[]> body(HttpResponse.ResponseInfo info) {
            String type = info.headers().firstValue("Content-Type").orElse("");
            type = type.replaceFirst(";.*", "").trim().toLowerCase(Locale.ROOT);
            int status = info.statusCode();
            if (request.onLine != null && status == 200 && type.equals(LINES)) {
                return new Body(request.onLine);
            }
            String wanted = status < 300 ? JSON : PROBLEM;
            Body body = new Body(null);
            if (status != 204 && !type.equals(wanted)) {
                Failure failure = Failure.foreign(status, "not " + wanted, retryAfter(info.headers()));
                body.whole.completeExceptionally(new ForeignReply(failure));
            }
            return body;
        }
    }

    /** Sends a request. */
    Exchange send(Request request) {
        Exchange exchange = new Exchange(request);
        exchange.ask(preferred.get(), bases.size() - 1);
        return exchange;
    }

    /** Closes connections. */
    void close() {
        HttpClient closing = http;
        http = null; // Java 17 closes its connections once it is unreachable
        if (closing instanceof AutoCloseable closeable) { // since Java 21
            try {
                closeable.close();
            } catch (Exception e) {
                throw new IllegalStateException("ratelimitd: closing connections", e);
            }
        }
    }

    /** Sends later requests to the address after this one. */
    private void avoid(int address) {
        preferred.compareAndSet(address, (address + 1) % bases.size());
    }

    private static Duration retryAfter(HttpHeaders headers) {
        String seconds = headers.firstValue("Retry-After").orElse("");
        if (!seconds.matches("[0-9]{1,9}")) {
            return Duration.ZERO;
        }
        return Duration.ofSeconds(Math.min(Long.parseLong(seconds), MAX_RETRY_AFTER_S));
    }

    /** A reply that is not ratelimitd's. */
    private static final class ForeignReply extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final transient Failure failure;

        ForeignReply(Failure failure) {
            super(failure.message(), null, false, false);
            this.failure = failure;
        }
    }

    private static Failure failureOf(Throwable error, URI base) {
        Throwable cause = error;
        while (cause instanceof CompletionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        for (Throwable t = cause; t != null; t = t.getCause()) {
            if (t instanceof ForeignReply foreign) {
                return foreign.failure;
            }
            if (t instanceof Unreadable unreadable) {
                return Failure.foreign(200, unreadable.getMessage(), Duration.ZERO);
            }
        }
        Throwable notConnected = notConnected(cause);
        if (notConnected == null) {
            return Failure.connection(cause.getClass().getSimpleName(), true, cause);
        }
        String reason = notConnected.getClass().getSimpleName();
        return Failure.connection("no connection to " + base.getAuthority() + ", " + reason, false, cause);
    }

    /** Returns why no connection was made, so that the request certainly was not sent; null: it may have been sent. */
    private static Throwable notConnected(Throwable error) {
        Throwable found = null;
        for (Throwable t = error; t != null; t = t.getCause()) {
            if (t instanceof UnresolvedAddressException || t instanceof UnknownHostException) {
                return t; // the JDK wraps it in a ConnectException
            }
            if (found == null
                    && (t instanceof ConnectException
                            || t instanceof HttpConnectTimeoutException
                            || t instanceof SSLHandshakeException)) {
                found = t;
            }
        }
        return found;
    }

    /** Reads a body, whole or in lines. Lines are not kept. */
    private static final class Body implements HttpResponse.BodySubscriber<byte[]> {
        private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final Wire.Lines lines = new Wire.Lines();
        /** Null: the body is read whole. */
        private final Consumer<byte[]> onLine;

        private Flow.Subscription subscription;

        Body(Consumer<byte[]> onLine) {
            this.onLine = onLine;
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return whole;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            if (whole.isDone()) { // the body is refused
                subscription.cancel();
            } else {
                subscription.request(Long.MAX_VALUE);
            }
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            if (whole.isDone()) {
                return;
            }
            try {
                for (ByteBuffer buffer : buffers) {
                    byte[] part = new byte[buffer.remaining()];
                    buffer.get(part);
                    take(part);
                }
            } catch (RuntimeException e) {
                subscription.cancel();
                whole.completeExceptionally(e);
            }
        }

        private void take(byte[] part) {
            if (onLine != null) {
                lines.add(part).forEach(onLine);
            } else {
                bytes.writeBytes(part);
            }
            if (bytes.size() > MAX_BODY || lines.restLength() > MAX_LINE) {
                throw new Unreadable("longer than any of ratelimitd's");
            }
        }

        @Override
        public void onError(Throwable error) {
            whole.completeExceptionally(error);
        }

        @Override
        public void onComplete() {
            whole.complete(onLine == null ? bytes.toByteArray() : null);
        }
    }
}

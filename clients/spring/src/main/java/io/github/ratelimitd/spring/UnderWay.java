package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.Decision;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Holds the units of a request that count while it is under way, and releases them at its end. */
final class UnderWay {
    /** The attribute of a request with this object. */
    static final String ATTRIBUTE = UnderWay.class.getName();

    private final Limiter limiter;
    private final List<Decision> decisions = new ArrayList<>(1);
    private boolean ended;

    UnderWay(Limiter limiter) {
        this.limiter = limiter;
    }

    /** Holds the units of a verdict's decision, and returns the verdict. Units after the end are released at once. */
    Verdict hold(Verdict verdict) {
        Decision decision = verdict.decision();
        if (decision != null && decision.release().isPresent() && !held(decision)) {
            limiter.release(decision);
        }
        return verdict;
    }

    private synchronized boolean held(Decision decision) {
        return !ended && decisions.add(decision);
    }

    /**
     * Ends the request.
     *
     * @return completes once its units are released or that has failed, never with an exception
     */
    CompletableFuture<Void> end() {
        return CompletableFuture.allOf(ended().stream().map(limiter::release).toArray(CompletableFuture[]::new));
    }

    private synchronized List<Decision> ended() {
        ended = true;
        List<Decision> held = List.copyOf(decisions);
        decisions.clear();
        return held;
    }
}

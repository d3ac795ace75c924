package io.github.ratelimitd.client;

import java.util.Optional;

/**
 * What became of one call of a batch. A confirm that succeeds has neither a decision nor an error.
 *
 * @param decision the service's decision; empty: there is an error, or the call was a confirm
 * @param error why there is no decision; empty: the call succeeded
 */
public record BatchResult(Optional<Decision> decision, Optional<CallException> error) {
    /**
     * Returns the decision, or throws the error.
     *
     * @return the decision; empty: the call was a confirm, and succeeded
     * @throws CallException if there is an error
     */
    public Optional<Decision> orThrow() {
        if (error.isPresent()) {
            throw error.get();
        }
        return decision;
    }
}

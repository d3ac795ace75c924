package io.github.ratelimitd.client;

import java.util.Optional;

/**
 * The result of one call of a batch. A confirm that succeeds has neither a decision nor an error.
 *
 * @param decision the service's decision; empty after an error, or for a confirm
 * @param error the error of the call; empty if it succeeded
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

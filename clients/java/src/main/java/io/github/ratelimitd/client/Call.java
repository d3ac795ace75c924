package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * One call with all its options, for {@link RatelimitdClient#send} and {@link RatelimitdClient#batch}. The
 * methods of this class make all kinds of calls.
 *
 * @param op the operation of the call
 * @param demands 1 to 16 demands. They are allowed or denied together: all are recorded, or none is. No policy and
 *     identifier may be repeated. A record that settles a reservation needs none, and a confirm has none.
 * @param reserve how long an allowed check holds the units: whole milliseconds, from 1 to an hour. Empty: it holds
 *     nothing.
 * @param reservation the reservation that a record settles; empty: none
 * @param cost units that each demand of the reservation used, in a call without demands: 0 or more; empty: the units that it
 *     holds
 * @param receipt the receipt of a confirm; empty: the call is not a confirm
 * @param idempotencyKey makes a repetition of this call count once: 1 to 255 bytes of printable ASCII, without a blank
 *     at either end. It is for takes and records. Empty: none, unless the client makes one because it
 *     {@linkplain RatelimitdClientBuilder#retries retries}.
 */
public record Call(
        Op op,
        List<Demand> demands,
        Optional<Duration> reserve,
        Optional<String> reservation,
        OptionalLong cost,
        Optional<String> receipt,
        Optional<String> idempotencyKey) {
    /**
     * Makes a call. The client checks the rest when it sends the call.
     *
     * @param op the operation of the call
     * @param demands the demands, which are copied
     * @param reserve how long an allowed check holds the units
     * @param reservation the reservation that a record settles
     * @param cost units that each demand of the reservation used
     * @param receipt the receipt of a confirm
     * @param idempotencyKey makes a repetition of this call count once
     * @throws NullPointerException if an argument, or one of the demands, is null
     */
    public Call {
        Objects.requireNonNull(op, "op");
        Objects.requireNonNull(demands, "demands");
        for (Demand demand : demands) {
            Objects.requireNonNull(demand, "demands");
        }
        demands = List.copyOf(demands);
        Objects.requireNonNull(reserve, "reserve");
        Objects.requireNonNull(reservation, "reservation");
        Objects.requireNonNull(cost, "cost");
        Objects.requireNonNull(receipt, "receipt");
        Objects.requireNonNull(idempotencyKey, "idempotencyKey");
    }

    private static Call of(Op op, Demand[] demands) {
        Objects.requireNonNull(demands, "demands");
        return new Call(
                op, Arrays.asList(demands), Optional.empty(), Optional.empty(), OptionalLong.empty(), Optional.empty(),
                Optional.empty());
    }

    /**
     * Returns a call that asks whether demands would be allowed now.
     *
     * @param demands at least one
     * @return the call
     */
    public static Call check(Demand... demands) {
        return of(Op.CHECK, demands);
    }

    /**
     * Returns a call that records demands, whatever the limits.
     *
     * @param demands at least one
     * @return the call
     */
    public static Call record(Demand... demands) {
        return of(Op.RECORD, demands);
    }

    /**
     * Returns a call that checks and records demands as one step.
     *
     * @param demands at least one
     * @return the call
     */
    public static Call take(Demand... demands) {
        return of(Op.TAKE, demands);
    }

    /**
     * Returns a call that checks demands and, if they are allowed, holds their units.
     *
     * @param hold how long: whole milliseconds, from 1 to an hour
     * @param demands at least one
     * @return the call
     */
    public static Call reserve(Duration hold, Demand... demands) {
        Call check = of(Op.CHECK, demands);
        Objects.requireNonNull(hold, "hold");
        return new Call(
                Op.CHECK, check.demands, Optional.of(hold), Optional.empty(), OptionalLong.empty(), Optional.empty(),
                Optional.empty());
    }

    /**
     * Returns a call that records the units that a reservation holds.
     *
     * @param reservation the {@link Decision#reservation} of a check that holds units
     * @return the call
     */
    public static Call settle(String reservation) {
        return settle(reservation, OptionalLong.empty());
    }

    /**
     * Returns a call that records the units of a reservation that were actually used.
     *
     * @param reservation the {@link Decision#reservation} of a check that holds units
     * @param cost units that each of its demands used: 0 or more
     * @return the call
     */
    public static Call settle(String reservation, long cost) {
        return settle(reservation, OptionalLong.of(cost));
    }

    private static Call settle(String reservation, OptionalLong cost) {
        Objects.requireNonNull(reservation, "reservation");
        return new Call(
                Op.RECORD, List.of(), Optional.empty(), Optional.of(reservation), cost, Optional.empty(),
                Optional.empty());
    }

    /**
     * Returns a call of a batch that confirms that the units of a receipt were real.
     *
     * @param receipt the {@link Decision#receipt} of a take or record
     * @return the call
     */
    public static Call confirm(String receipt) {
        Objects.requireNonNull(receipt, "receipt");
        return new Call(
                Op.CONFIRM, List.of(), Optional.empty(), Optional.empty(), OptionalLong.empty(), Optional.of(receipt),
                Optional.empty());
    }

    /**
     * Returns this call with an idempotency key.
     *
     * @param key 1 to 255 bytes of printable ASCII, without a blank at either end
     * @return a call that counts once, however often it is sent
     */
    public Call withIdempotencyKey(String key) {
        Objects.requireNonNull(key, "key");
        return new Call(op, demands, reserve, reservation, cost, receipt, Optional.of(key));
    }

    /**
     * Names the operation and the demands. It leaves out identifiers, receipts and keys, because a call may be logged.
     *
     * @return a text without identifiers
     */
    @Override
    public String toString() {
        return "Call[op=" + op + ", demands=" + demands + "]";
    }
}

// Package storetest is what every store has to pass: the contract of
// limiter.Store, and the engine's promises over the store under test.
//
// It knows no particular store. Those whose memory survives, or is shared, need no
// cleaning: every test counts under keys of its own.
package storetest

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Run runs the whole suite against store, which several tests use at once.
func Run(t *testing.T, store limiter.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, limiter.Store)
	}{
		{"EventsNewestOfThoseLater", testEventsNewestOfThoseLater},
		{"EventsOutOfOrder", testEventsOutOfOrder},
		{"EventsOfOneMillisecond", testEventsOfOneMillisecond},
		{"EventsRemoved", testEventsRemoved},
		{"SpansAreApart", testSpansAreApart},
		{"CountersAddUp", testCountersAddUp},
		{"CountersAtTheSameTime", testCountersAtTheSameTime},
		{"ResetIsReadWithTheCount", testResetIsReadWithTheCount},
		{"Holds", testHolds},
		{"SettledBeforeHeld", testSettledBeforeHeld},
		{"EndedHoldsHideNothing", testEndedHoldsHideNothing},
		{"WriteAll", testWriteAll},
		{"CellChangesOnItsCondition", testCellChangesOnItsCondition},
		{"CellRemoved", testCellRemoved},
		{"EventsBesideACell", testEventsBesideACell},
		{"CellExpires", testCellExpires},
		{"CellWrittenByMany", testCellWrittenByMany},
		{"Feed", testFeed},
		{"ChangesExpire", testChangesExpire},
		{"Trace", testTraces},
		{"CheckRecordsNothing", testCheckRecordsNothing},
		{"RecordGoesPastTheLimit", testRecordGoesPastTheLimit},
		{"CostsCount", testCostsCount},
		{"Modes", testModes},
		{"SeveralLimits", testSeveralLimits},
		{"ResetReachesEveryEngine", testResetReachesEveryEngine},
		{"ResetIsCountedUnderFromThenOn", testResetIsCountedUnderFromThenOn},
		{"ReloadKeepsCounts", testReloadKeepsCounts},
		{"NeverMoreThanTheLimit", testNeverMoreThanTheLimit},
		{"TracesUnderSerial", testTracesUnderSerial},
		{"EveryKindDenies", testEveryKindDenies},
		{"AllOrNone", testAllOrNone},
		{"DemandsByMode", testDemandsByMode},
		{"RepetitionsCountOnce", testRepetitionsCountOnce},
		{"DenialIsDecidedAnew", testDenialIsDecidedAnew},
		{"RacingRepetitionsCountOnce", testRacingRepetitionsCountOnce},
		{"ReservationIsSettledOnce", testReservationIsSettledOnce},
		{"SettledAfterItsRefund", testSettledAfterItsRefund},
		{"SettledBehindOthers", testSettledBehindOthers},
		{"HoldsOfLogsEnd", testHoldsOfLogsEnd},
		{"RefundOnce", testRefundOnce},
		{"RefundOfWhatWasReset", testRefundOfWhatWasReset},
		{"TokensAreForOneUse", testTokensAreForOneUse},
		{"HashKeysOutOfStep", testHashKeysOutOfStep},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, store)
		})
	}
}

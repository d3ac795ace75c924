// Package storetest is the test suite that every store must pass: the contract of store.Store, and the engine's
// guarantees over the store under test.
//
// It knows no particular store. Stores that are durable or shared need no cleaning, as every test counts under keys of
// its own.
package storetest

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Run runs the whole suite against store, which several tests use at once.
func Run(t *testing.T, store store.Store) {
	run(t, store, append(slices.Clone(contract), promises...))
}

// RunTallied runs the tests of engines' guarantees over store once more, with every window counted in running totals.
func RunTallied(t *testing.T, s store.Store) {
	feed, _ := s.(store.Feed)
	run(t, tallied{s, feed}, promises)
}

// tallied is a store whose engines count in running totals. It can't lock keys.
type tallied struct {
	store.Store
	store.Feed
}

// test is one test of the suite.
type test struct {
	name string
	run  func(*testing.T, store.Store)
}

func run(t *testing.T, store store.Store, tests []test) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, store)
		})
	}
}

// contract tests the contract of store.Store.
var contract = []test{
	{"EventsNewestOfThoseLater", testEventsNewestOfThoseLater},
	{"EventsOutOfOrder", testEventsOutOfOrder},
	{"EventsOfOneMillisecond", testEventsOfOneMillisecond},
	{"EventsRemoved", testEventsRemoved},
	{"SpansAreApart", testSpansAreApart},
	{"CountersAddUp", testCountersAddUp},
	{"CountersAtTheSameTime", testCountersAtTheSameTime},
	{"ResetIsReadWithTheCount", testResetIsReadWithTheCount},
	{"TalliesReplaceThemselves", testTalliesReplaceThemselves},
	{"TalliesOfManyWriters", testTalliesOfManyWriters},
	{"ResetIsReadWithTheTallies", testResetIsReadWithTheTallies},
	{"Holds", testHolds},
	{"SettledBeforeHeld", testSettledBeforeHeld},
	{"SettledAtAnotherCost", testSettledAtAnotherCost},
	{"EndedHoldsHideNothing", testEndedHoldsHideNothing},
	{"WriteThenRead", testWriteThenRead},
	{"WriteEach", testWriteEach},
	{"CellChangesOnItsCondition", testCellChangesOnItsCondition},
	{"CellRemoved", testCellRemoved},
	{"CellExpires", testCellExpires},
	{"CellWrittenByMany", testCellWrittenByMany},
	{"Feed", testFeed},
	{"ChangesExpire", testChangesExpire},
	{"OverridesStay", testOverridesStay},
}

// promises tests engines' guarantees over a store.
var promises = []test{
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
	{"EveryKindDenies", testEveryKindDenies},
	{"AllOrNone", testAllOrNone},
	{"DemandsByMode", testDemandsByMode},
	{"RepetitionsCountOnce", testRepetitionsCountOnce},
	{"DenialIsDecidedAnew", testDenialIsDecidedAnew},
	{"RacingRepetitionsCountOnce", testRacingRepetitionsCountOnce},
	{"ReleaseMakesRoom", testReleaseMakesRoom},
	{"ReleaseBesideOthers", testReleaseBesideOthers},
	{"ReservationIsSettledOnce", testReservationIsSettledOnce},
	{"SettledAfterItsRefund", testSettledAfterItsRefund},
	{"SettledBehindOthers", testSettledBehindOthers},
	{"SettledAtItsCost", testSettledAtItsCost},
	{"RacingSettlements", testRacingSettlements},
	{"Released", testReleased},
	{"SettledAfterItsEnd", testSettledAfterItsEnd},
	{"SettledOfSeveral", testSettledOfSeveral},
	{"HoldsOfLogsEnd", testHoldsOfLogsEnd},
	{"RefundOnce", testRefundOnce},
	{"RefundOfWhatWasReset", testRefundOfWhatWasReset},
	{"ConfirmedUnitsCountNoMore", testConfirmedUnitsCountNoMore},
	{"ConfirmTouchesNothingElse", testConfirmTouchesNothingElse},
	{"OneConfirmationOfANumber", testOneConfirmationOfANumber},
	{"KnownPassConversions", testKnownPassConversions},
	{"DeniedTakesConfirmNothing", testDeniedTakesConfirmNothing},
	{"Conversion", testConversion},
	{"ConfirmOfWhatWasReset", testConfirmOfWhatWasReset},
	{"ConfirmOfAnother", testConfirmOfAnother},
	{"RacingConfirms", testRacingConfirms},
	{"TokensAreForOneUse", testTokensAreForOneUse},
	{"HashKeysOutOfStep", testHashKeysOutOfStep},
	{"Overrides", testOverrides},
	{"Derived", testDerived},
	{"DerivedReservation", testDerivedReservation},
	{"DerivedOnce", testDerivedOnce},
	{"ByIdentifier", testByIdentifier},
	{"LimitFromRequest", testLimitFromRequest},
	{"ShadowChangesNothing", testShadowChangesNothing},
}

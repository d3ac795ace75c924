// Takes until it is denied, takes several policies at once, and reads a problem.
import kotlin.system.exitProcess
import org.openapitools.client.apis.DecisionsApi
import org.openapitools.client.infrastructure.ApiClient
import org.openapitools.client.infrastructure.getErrorResponse
import org.openapitools.client.models.Demand
import org.openapitools.client.models.Denial
import org.openapitools.client.models.Problem
// The generator names what a take and a record have in common after the record.
import org.openapitools.client.models.RecordOneOf as One
import org.openapitools.client.models.RecordOneOf1 as Several
import org.openapitools.client.models.Take

fun expect(what: String, holds: Boolean) {
    if (!holds) {
        System.err.println("$what is not as it should be")
        exitProcess(1)
    }
}

fun main(arguments: Array<String>) {
    val decisions = ApiClient(arguments[0] + "/").createService(DecisionsApi::class.java)
    fun take(policy: String) = decisions.take(Take(One(policy, "kotlin"))).execute()
    for (used in 1L..3L) {
        expect("a take", take("sms-send").body()?.used == used)
    }
    val denied = take("sms-send")
    val denial = denied.getErrorResponse<Denial>()
    expect("a denial", denied.code() == 429 && denial?.allowed == false && (denial.retryAfterMs ?: 0) > 0)
    val both = Several(listOf(Demand("address", "kotlin"), Demand("second", "kotlin")))
    val demands = decisions.take(Take(both)).execute().body()?.demands
    expect("a take of two policies", demands?.size == 2)
    expect("a window of a month", demands?.get(0)?.limits?.get(0)?.windowMs == 2_678_400_000)
    val unknown = take("none-such")
    val problem = unknown.getErrorResponse<Problem>()
    expect("a problem", unknown.code() == 404 && problem?.status == 404 && problem.field == "policy")
    exitProcess(0) // connections that are kept would keep the process for a minute
}

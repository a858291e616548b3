"""Conformance to stock Mesos: claims of its allocator tests, and behaviour without a stock test.

Rows 1-40
=========

| rows | module |
|---|---|
| 1-6 (UnreservedDRF … SameShareFairness), 20, 21 | `test_sorter` |
| 7-13 (OfferFilter … RemoveFilters) | `test_offer_filters` |
| 14-19, 22, 28-34, 38, 40 (eligibility) | `test_eligibility` |
| 23-27, 35-37, 39 (conversions of resources) | `test_resource_changes` |

Rows 41-60
==========

Longshare's tests are in `test_quota` unless a module is given; their names begin with `test_`.

| row | stock test | test of Longshare |
|---|---|---|
| 41 | QuotaProvidesGuarantee | resources_declined_by_a_quota_role_stay_headroom_... |
| 42 | RemoveQuota | without_its_quota_a_role_shares_like_any_other, a_quota_can_be_removed_twice |
| 43 | MultipleFrameworksInRoleWithQuota | frameworks_share_the_quota_of_their_role_fairly_... |
| 44 | QuotaAllocationGranularity | an_agent_is_chopped_to_the_guarantee_... |
| 45 | QuotaAllocationGranularityUnchoppableResource | a_mount_disk_larger_than_... |
| 46 | QuotaAllocationMultipleDisk | plain_and_mount_disks_fill_a_disk_quota_together_... |
| 47 | QuotaRoleAllocateNonQuotaResource | resources_without_a_guarantee_come_along_... |
| 48 | DRFWithQuota | a_satisfied_quota_role_gets_no_more_... |
| 49 | QuotaAgainstStarvation | a_quota_moves_circulating_resources_to_a_starving_role |
| 50 | QuotaAbsentFramework | the_quota_of_a_role_without_frameworks_stays_headroom_... |
| 51 | MultiQuotaAbsentFrameworks | a_quota_role_without_frameworks_does_not_block_... |
| 52 | MultiQuotaWithFrameworks | a_satisfied_quota_role_of_small_share_does_not_starve_... |
| 53 | DisproportionateQuotaVsAllocation | only_resources_with_an_unsatisfied_guarantee_... |
| 54 | ReservationWithinQuota | reserved_and_unreserved_resources_together_satisfy_a_quota |
| 54 | ReservationUnallocated | an_unallocated_reservation_counts_towards_quota |
| 54 | ReservationAllocated | an_allocated_reservation_counts_towards_quota |
| 55 | QuotaSetAsideReservedResources | headroom_is_not_taken_from_... |
| 55 | NonQuotaRoleReservationWithQuotaRole | a_role_without_quota_is_offered_its_reservations_... |
| 56 | QuotaHeadroomWhenReservationsExceedQuota | reservations_beyond_one_roles_quota_... |
| 57 | QuotaWithAncestorReservations | a_parents_reservation_allocated_to_its_child_... |
| 57 | QuotaWithNestedRoleReservation | a_subroles_reservation_counts_towards_its_parents_quota |
| 58 | QuotaAccountingReserveAllocatedResources | reserving_an_allocation_leaves_... |
| 58 | QuotaAccountingUnreserveAllocatedResources | unreserving_an_allocation_leaves_... |
| 59 | ResourceMetrics | totals_and_allocations_are_shown_by_resource |
| 59 | AllocationRunsMetric | a_burst_of_calls_causes_one_allocation_cycle |
| 59 | DominantShareMetrics | dominant_shares_are_shown_and_end_with_their_role |
| 60 | SharedAllocatedResourceQuotaAccounting | a_shared_volume_allocated_twice_... |

Behaviour without a stock test
==============================

Longshare's tests are in `test_lifecycle` unless a module is given.

| behaviour | test of Longshare |
|---|---|
| `Recover`: 80 %, 10 min, no agents, `Resume` during recovery | `test_failover_recovery` |
| `RemoveAgent`, then a late `RecoverResources` | removing_an_agent_frees_... |
| the same agent's id again | an_agent_that_comes_back_..., an_agent_removed_and_added_... |
| `UpdateFramework` while inactive | a_framework_updated_while_inactive_... |
| an allocation in a left role | a_left_role_... |
| an outstanding inverse offer after a deactivation | a_framework_deactivated_with_... |
| over-release | recovering_more_than_the_allocation_... |
| `UpdateAvailable` against an outstanding offer | an_operation_fails_if_... |
| a snapshot against the full log of calls | `test_resync` |

The claims of the stock sorter tests (`sorter_tests.cpp`) and of `NestedRoleDRF` are in
`test_role_tree`.
"""

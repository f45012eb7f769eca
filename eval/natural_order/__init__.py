"""Natural order: does a clean model stay innocent of files that were never shuffled?"""

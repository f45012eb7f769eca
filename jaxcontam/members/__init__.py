"""Which texts were seen? Shi et al.: `membership`, of texts and of documents."""

"""No clean model is accused: small files of every kind through every command."""
